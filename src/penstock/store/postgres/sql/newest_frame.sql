-- The latest time of the records of a partition.
SELECT max(time_ms) FROM penstock.frame WHERE topic = %(topic)s AND partition = %(partition)s
