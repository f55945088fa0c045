-- Where partitions begin and end, how large they are, and how often they were rewritten.
SELECT p.topic, p.partition, p.start, p.confirmed, p.size_bytes, p.rewrites
  FROM unnest(%(topics)s::integer[], %(partitions)s::integer[]) AS wanted (topic, partition)
  JOIN penstock.topic_partition AS p ON p.topic = wanted.topic AND p.partition = wanted.partition
