-- How many messages of its tier are leased before one, if nothing else comes; counted no further than ten thousand.
SELECT count(*)::integer FROM (
    (SELECT 1 FROM penstock.ready
     WHERE queue = %(queue)s AND tier = %(tier)s
        AND (sent_at_ms, number) < (%(since)s::bigint, (%(key)s >> 3)::bigint) LIMIT 10000)
    UNION ALL
    (SELECT 1 FROM penstock.marked
     WHERE queue = %(queue)s AND tier = %(tier)s AND state = 1
        AND (since_ms, key) < (%(since)s::bigint, %(key)s::bigint) LIMIT 10000)
) AS message
