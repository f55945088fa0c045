-- Partitions with records that consumers do not see yet.
SELECT topic, partition FROM penstock.topic_partition WHERE confirmed < next ORDER BY topic, partition
