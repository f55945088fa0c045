-- The first record batch up to which a time was reached; no record before it has that time or a later one.
SELECT base FROM penstock.frame
 WHERE topic = %(topic)s AND partition = %(partition)s AND latest_ms >= %(time)s
 ORDER BY latest_ms, base LIMIT 1
