-- What a cleaning of a compacted partition has to look at: from where, up to where, since when, and how many bytes there are of
-- it, and before it. It ends before what consumers do not see yet, and before the first batch that is later than a time.
WITH known AS (
    SELECT p.rewrites, p.start, p.confirmed, p.size_bytes, coalesce(c.cleanings, '{}') AS cleanings,
           greatest(p.start, c.cleanings[cardinality(c.cleanings) - 1]) AS cleaned
      FROM penstock.topic_partition AS p LEFT JOIN penstock.topic_cleaning AS c USING (topic, partition)
     WHERE topic = %(topic)s AND partition = %(partition)s
), ahead AS (
    SELECT base, next, octet_length(bytes) AS size, CASE WHEN time_ms < 0 THEN arrived_at_ms ELSE time_ms END AS at_ms
      FROM penstock.frame
     WHERE topic = %(topic)s AND partition = %(partition)s AND base >= (SELECT cleaned FROM known)
), old AS (
    SELECT * FROM ahead
     WHERE base < coalesce((
         SELECT min(base) FROM ahead, known WHERE at_ms > %(before)s::bigint OR next > confirmed
     ), 9223372036854775807)
)
SELECT rewrites, start, cleanings, (SELECT max(next) FROM old), (SELECT at_ms FROM old ORDER BY base LIMIT 1),
       (SELECT coalesce(sum(size), 0)::bigint FROM old), size_bytes - (SELECT coalesce(sum(size), 0)::bigint FROM ahead)
  FROM known
