-- Leased messages, from a position on: by lease and row.
SELECT
    l.key, 3, t.tier, l.sent_at_ms, l.deliveries, 0, l.grp, l.error, l.home, l.home_key, l.home_sent_at_ms,
    l.home_deliveries, t.is_escalated,
    CASE WHEN %(text)s::bytea IS NULL OR position(%(text)s::bytea IN l.body) > 0 THEN l.body END, l.attributes,
    octet_length(l.body) + coalesce(octet_length(l.attributes), 0), l.lease, l.row
FROM (
    SELECT number FROM penstock.lease WHERE queue = %(queue)s AND number >= %(lease)s::bigint ORDER BY number
) AS e CROSS JOIN LATERAL penstock.in_lease(e.number, true) AS l CROSS JOIN LATERAL penstock.held_tier(
    l.tier, coalesce(l.since_ms, l.sent_at_ms), l.own_tier, l.escalated_until_ms, %(now)s, %(aging_ms)s
) AS t
WHERE t.tier = ANY (%(tiers)s)
    AND (%(group)s::bytea IS NULL OR coalesce(l.grp, '') = %(group)s::bytea)
    AND (l.lease, l.row) > (%(lease)s::bigint, %(row)s::integer)
-- In the order of leases and rows without being told: a sort would have all of them unpacked first.
LIMIT %(most)s
