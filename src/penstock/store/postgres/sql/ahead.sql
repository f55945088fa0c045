-- What is leased before a message whose place is not fixed by its group: how many before it among its own, how many
-- groups take turns in its tier, what goes before it if its group is noisy, and how many wait in each tier.
-- Counted no further than ten thousand, messages of groups than a hundred thousand, whole tiers than a million.
WITH grouped AS MATERIALIZED (
    SELECT message.grp, count(*) AS count,
        message.grp = ANY (ARRAY(SELECT n.grp FROM penstock.noisy(%(queue)s, %(now)s) AS n)) AS is_noisy
    FROM (
        SELECT m.grp FROM penstock.marked AS m
        WHERE m.queue = %(queue)s AND m.tier = %(tier)s AND m.state = 1 AND m.turn IS NOT NULL LIMIT 100000
    ) AS message
    GROUP BY message.grp
), plain AS MATERIALIZED (
    SELECT (
        SELECT count(*) FROM (
            SELECT 1 FROM penstock.ready WHERE queue = %(queue)s AND tier = %(tier)s LIMIT 10000
        ) AS message
    ) + (
        SELECT count(*) FROM (
            SELECT 1 FROM penstock.marked
            WHERE queue = %(queue)s AND tier = %(tier)s AND state + 0 = 1 AND grp IS NULL
            ORDER BY since_ms LIMIT 10000
        ) AS message
    ) AS count
)
SELECT
    CASE WHEN %(grp)s::bytea IS NULL THEN (
        SELECT count(*) FROM (
            (SELECT 1 FROM penstock.ready
             WHERE queue = %(queue)s AND tier = %(tier)s
                AND (sent_at_ms, number) < (%(since)s::bigint, (%(key)s >> 3)::bigint) LIMIT 10000)
            UNION ALL
            (SELECT 1 FROM penstock.marked
             WHERE queue = %(queue)s AND tier = %(tier)s AND state + 0 = 1 AND grp IS NULL
                AND since_ms <= %(since)s AND (since_ms, key) < (%(since)s::bigint, %(key)s::bigint)
             ORDER BY since_ms LIMIT 10000)
        ) AS message
    ) ELSE (
        SELECT count(*) FROM (
            SELECT 1 FROM penstock.marked
            WHERE queue = %(queue)s AND grp = %(grp)s AND tier = %(tier)s AND state = 1 AND turn < %(turn)s::bigint
            LIMIT 10000
        ) AS message
    ) END::integer AS mine,
    ((plain.count > 0)::integer + (SELECT count(*) FROM grouped) + (
        SELECT count(*) FROM (
            SELECT 1 FROM penstock.line WHERE queue = %(queue)s AND open_tier = %(tier)s LIMIT 10000
        ) AS open
    ))::integer AS turns,
    (SELECT count(*) FROM grouped WHERE is_noisy)::integer AS noisy_turns,
    coalesce((SELECT is_noisy FROM grouped WHERE grp = %(grp)s), false) AS is_noisy,
    (plain.count + (SELECT coalesce(sum(count), 0) FROM grouped WHERE NOT is_noisy))::integer AS quiet,
    ARRAY(
        SELECT (
            SELECT count(*) FROM (
                (SELECT 1 FROM penstock.ready AS r WHERE r.queue = %(queue)s AND r.tier = t.tier LIMIT t.most)
                UNION ALL
                (SELECT 1 FROM penstock.marked AS m
                 WHERE m.queue = %(queue)s AND m.tier = t.tier AND m.state = 1 LIMIT t.most)
            ) AS message
        )::integer
        FROM generate_series(0, 4) AS every (tier) CROSS JOIN LATERAL (
            -- Of the others it matters whether they have any; or, if they all go first, how many.
            SELECT every.tier::smallint AS tier, CASE
                WHEN every.tier = %(tier)s OR (%(is_strict)s AND every.tier < %(tier)s) THEN 1000000 ELSE 1
            END AS most
        ) AS t
        ORDER BY t.tier
    ) AS waiting
FROM plain
