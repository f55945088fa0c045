-- Where partitions begin and end, and how large they are.
SELECT p.topic, p.partition, p.start, p.confirmed, p.size_bytes
  FROM unnest(%(topics)s::integer[], %(partitions)s::integer[]) AS wanted (topic, partition)
  JOIN penstock.topic_partition AS p ON p.topic = wanted.topic AND p.partition = wanted.partition
