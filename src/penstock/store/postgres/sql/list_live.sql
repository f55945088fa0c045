-- What is in a lane of a queue, in the order of numbers.
SELECT key, place, tier, sent_at_ms, deliveries, grp, error, home, home_key, body, attributes FROM (
    SELECT * FROM (
        SELECT
            number << 3 | tier AS key, 1 AS place, tier, sent_at_ms, 0 AS deliveries, NULL::bytea AS grp,
            NULL::text AS error, NULL::integer AS home, NULL::bigint AS home_key,
            CASE WHEN %(with_bodies)s THEN body END AS body, CASE WHEN %(with_bodies)s THEN attributes END AS attributes
        FROM penstock.ready
        WHERE queue = %(queue)s AND tier = %(lane)s AND number >= %(first)s AND number < %(end)s
        ORDER BY number LIMIT %(most)s
    ) AS plain
    UNION ALL
    SELECT * FROM (
        SELECT
            key, state, tier, coalesce(home_sent_at_ms, sent_at_ms), deliveries + coalesce(home_deliveries, 0), grp,
            error, home, home_key, CASE WHEN %(with_bodies)s THEN body END,
            CASE WHEN %(with_bodies)s THEN attributes END
        FROM penstock.marked
        WHERE queue = %(queue)s AND key & 7 = %(lane)s AND key >= %(first)s::bigint << 3 AND key < %(end)s::bigint << 3
        ORDER BY key LIMIT %(most)s
    ) AS marked
    UNION ALL
    SELECT * FROM (
        SELECT
            l.key, 3, t.tier, coalesce(l.home_sent_at_ms, l.sent_at_ms), l.deliveries + coalesce(l.home_deliveries, 0),
            l.grp, l.error, l.home, l.home_key, CASE WHEN %(with_bodies)s THEN l.body END,
            CASE WHEN %(with_bodies)s THEN l.attributes END
        FROM (
            (
                SELECT * FROM penstock.leased
                WHERE queue = %(queue)s AND key & 7 = %(lane)s
                    AND key >= %(first)s::bigint << 3 AND key < %(end)s::bigint << 3
                ORDER BY key LIMIT %(most)s
            )
            UNION ALL
            -- Leases of one are in the order of their keys, in an index, and those of several by their numbers; of those with
            -- numbers far apart all are looked at.
            SELECT held.* FROM (
                SELECT number FROM penstock.lease
                WHERE octet_length(keys) = 8 AND get_byte(keys, 7) & 7 = %(lane)s
                    AND int4send(queue) || keys >= int4send(%(queue)s) || int8send(%(first)s::bigint << 3)
                    AND int4send(queue) || keys < int4send(%(queue)s) || int8send(%(end)s::bigint << 3)
                ORDER BY int4send(queue) || keys LIMIT %(most)s
            ) AS e CROSS JOIN LATERAL penstock.in_lease(e.number, %(with_bodies)s) AS held
            UNION ALL
            SELECT held.* FROM penstock.leases_between(
                %(queue)s, %(lane)s::smallint, %(first)s, %(end)s, %(most)s
            ) AS e (number) CROSS JOIN LATERAL penstock.in_lease(e.number, %(with_bodies)s) AS held
            WHERE held.key & 7 = %(lane)s AND held.key >= %(first)s::bigint << 3 AND held.key < %(end)s::bigint << 3
            UNION ALL
            SELECT held.* FROM penstock.lease AS e CROSS JOIN LATERAL penstock.in_lease(e.number, %(with_bodies)s) AS held
            WHERE e.queue + 0 = %(queue)s AND octet_length(e.keys) > 8 AND e.lane IS NULL AND e.lasts IS NULL
                AND held.key & 7 = %(lane)s
                AND held.key >= %(first)s::bigint << 3 AND held.key < %(end)s::bigint << 3
        ) AS l CROSS JOIN LATERAL penstock.held_tier(
            l.tier, coalesce(l.since_ms, l.sent_at_ms), l.own_tier, l.escalated_until_ms, %(now)s, %(aging_ms)s
        ) AS t
        ORDER BY l.key LIMIT %(most)s
    ) AS leased
) AS message
ORDER BY key LIMIT %(most)s
