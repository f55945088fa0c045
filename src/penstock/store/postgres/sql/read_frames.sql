-- Whole record batches from the one that holds an offset on, as many as fit; the first comes however large it is.
WITH ahead AS (
    SELECT base, octet_length(bytes) AS size FROM penstock.frame
     WHERE topic = %(topic)s AND partition = %(partition)s AND next > %(offset)s AND base < %(end)s
       AND base >= coalesce((
           SELECT max(base) FROM penstock.frame
            WHERE topic = %(topic)s AND partition = %(partition)s AND base <= %(offset)s
       ), %(offset)s)
     ORDER BY base LIMIT 1000
), summed AS (
    SELECT base, size, sum(size) OVER (ORDER BY base) AS upto FROM ahead
)
SELECT f.base, f.next, f.bytes
  FROM summed JOIN penstock.frame AS f ON f.topic = %(topic)s AND f.partition = %(partition)s AND f.base = summed.base
 WHERE upto <= %(bytes_max)s OR upto = size
 ORDER BY f.base
