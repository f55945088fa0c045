-- Messages that somebody holds, from a place on: by lease and row.
SELECT
    l.key, 3, l.tier, l.sent_at_ms, l.deliveries, 0, l.grp, l.error, l.home, l.home_key, l.home_sent_at_ms,
    l.home_deliveries, l.own_tier IS NOT NULL, l.body, l.attributes, l.lease, l.row
FROM penstock.lease AS e JOIN penstock.leased AS l ON l.lease = e.number
WHERE e.queue = %s AND l.tier = ANY (%s) AND (%s::bytea IS NULL OR coalesce(l.grp, '') = %s::bytea)
    AND (l.lease, l.row) > (%s::bigint, %s::integer)
ORDER BY l.lease, l.row LIMIT %s
