-- One message in any state: found by its key in this queue, or by the queue it was first sent to.
SELECT
    p.key, p.place, p.tier, p.sent_at_ms, p.deliveries, p.visible_at_ms, p.grp, p.error,
    p.home, p.home_key, p.home_sent_at_ms, p.home_deliveries, p.is_escalated, p.since_ms, p.turn, p.ordinal,
    p.lease, p.token, p.row, p.until_ms, p.body, p.attributes
FROM (
    SELECT
        r.number << 3 | r.tier AS key, 1 AS place, r.tier, r.sent_at_ms, 0 AS deliveries, 0::bigint AS visible_at_ms,
        NULL::bytea AS grp, NULL::text AS error, NULL::integer AS home, NULL::bigint AS home_key,
        NULL::bigint AS home_sent_at_ms, NULL::integer AS home_deliveries, false AS is_escalated,
        r.sent_at_ms AS since_ms, NULL::bigint AS turn, r.number AS ordinal, NULL::bigint AS lease,
        NULL::bigint AS token, NULL::integer AS row, NULL::bigint AS until_ms, r.body, r.attributes
    FROM penstock.ready AS r
    WHERE r.queue = %(queue)s AND %(home)s = %(queue)s
        AND r.tier = (%(key)s & 7)::smallint AND r.number = %(key)s >> 3
    UNION ALL
    SELECT
        m.key, m.state, m.tier, m.sent_at_ms, m.deliveries, m.visible_at_ms, m.grp, m.error, m.home, m.home_key,
        m.home_sent_at_ms, m.home_deliveries, m.own_tier IS NOT NULL, m.since_ms, m.turn, m.ordinal,
        NULL, NULL, NULL, NULL, m.body, m.attributes
    FROM penstock.marked AS m
    WHERE m.queue = %(queue)s AND m.key = %(key)s AND %(home)s = %(queue)s AND m.home IS NULL
    UNION ALL
    SELECT
        m.key, m.state, m.tier, m.sent_at_ms, m.deliveries, m.visible_at_ms, m.grp, m.error, m.home, m.home_key,
        m.home_sent_at_ms, m.home_deliveries, m.own_tier IS NOT NULL, m.since_ms, m.turn, m.ordinal,
        NULL, NULL, NULL, NULL, m.body, m.attributes
    FROM penstock.marked AS m
    WHERE m.home = %(home)s AND m.home_key = %(key)s AND m.queue = %(queue)s
    UNION ALL
    SELECT
        l.key, 3, t.tier, l.sent_at_ms, l.deliveries, 0, l.grp, l.error, l.home, l.home_key,
        l.home_sent_at_ms, l.home_deliveries, t.is_escalated, t.since_ms, l.turn,
        l.ordinal, l.lease, e.token, l.row, coalesce(l.until_ms, e.until_ms), l.body, l.attributes
    FROM penstock.leases_of(%(queue)s, %(home)s, %(key)s) AS holder (number)
    CROSS JOIN LATERAL (SELECT token, until_ms FROM penstock.lease WHERE number = holder.number OFFSET 0) AS e
    CROSS JOIN LATERAL penstock.in_lease(holder.number, true) AS l
    CROSS JOIN LATERAL penstock.held_tier(
        l.tier, coalesce(l.since_ms, l.sent_at_ms), l.own_tier, l.escalated_until_ms, %(now)s, %(aging_ms)s
    ) AS t
    WHERE coalesce(l.home, %(queue)s) = %(home)s AND coalesce(l.home_key, l.key) = %(key)s
) AS p
LIMIT 1
