-- Settled messages in the order of their transactions, from an offset on.
SELECT
    at_offset, queue, key, home, home_key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms, deliveries, tier,
    ending, grp, error, body, attributes
FROM (
    SELECT * FROM penstock.history
    WHERE at_offset >= %(first)s AND at_offset < %(end)s ORDER BY at_offset LIMIT %(looked)s
) AS looked
WHERE (%(queue)s::integer IS NULL OR queue = %(queue)s) AND (%(from_ms)s::bigint IS NULL OR settled_at_ms >= %(from_ms)s)
ORDER BY at_offset LIMIT %(most)s
