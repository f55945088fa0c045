-- What is leased before a message whose place is not fixed by its group: how many before it among its own, how many
-- groups take turns in its tier, and, if its group is noisy, how many of those are and how much of the tier is theirs.
-- Counted no further than ten thousand messages and a thousand groups. `state + 0`: with `state = 1` the index of turns looks as
-- good for a group, and has those of all groups.
WITH RECURSIVE noise AS MATERIALIZED (
    SELECT ARRAY(SELECT n.grp FROM penstock.noisy(%(queue)s, %(now)s) AS n) AS names
), every_group (grp) AS (
    -- One look for each: not through all of their messages.
    (SELECT grp FROM penstock.marked WHERE queue = %(queue)s AND turn IS NOT NULL ORDER BY grp LIMIT 1)
    UNION ALL
    SELECT (
        SELECT m.grp FROM penstock.marked AS m
        WHERE m.queue = %(queue)s AND m.turn IS NOT NULL AND m.grp > every_group.grp ORDER BY m.grp LIMIT 1
    )
    FROM every_group WHERE every_group.grp IS NOT NULL
), grouped AS MATERIALIZED (
    SELECT grp, grp = ANY ((SELECT names FROM noise)::bytea[]) AS is_noisy
    FROM (SELECT grp FROM every_group LIMIT 1000) AS g
    WHERE coalesce((
        SELECT true FROM penstock.marked AS m
        WHERE m.queue = %(queue)s AND m.grp = g.grp AND m.tier = %(tier)s AND m.turn IS NOT NULL AND m.state + 0 = 1
        LIMIT 1
    ), false)
)
SELECT
    CASE WHEN %(grp)s::bytea IS NULL THEN (
        SELECT count(*) FROM (
            (
                -- In the order of numbers, which is that of sending, or nearly: none is looked at further behind.
                SELECT 1 FROM (
                    SELECT sent_at_ms, number FROM penstock.ready
                    WHERE queue = %(queue)s AND tier = %(tier)s ORDER BY number LIMIT 10000
                ) AS front
                WHERE (sent_at_ms, number) < (%(since)s::bigint, (%(key)s >> 3)::bigint)
            )
            UNION ALL
            (SELECT 1 FROM penstock.marked
             WHERE queue = %(queue)s AND tier = %(tier)s AND state + 0 = 1 AND grp IS NULL
                AND since_ms <= %(since)s AND (since_ms, key) < (%(since)s::bigint, %(key)s::bigint)
             ORDER BY since_ms LIMIT 10000)
        ) AS message
    ) ELSE (
        SELECT count(*) FROM (
            SELECT 1 FROM penstock.marked
            WHERE queue = %(queue)s AND grp = %(grp)s AND tier = %(tier)s AND state + 0 = 1 AND turn < %(turn)s::bigint
            LIMIT 10000
        ) AS message
    ) END::integer AS mine,
    (coalesce(
        (SELECT 1 FROM penstock.ready WHERE queue = %(queue)s AND tier = %(tier)s ORDER BY number LIMIT 1),
        (SELECT 1 FROM penstock.marked
         WHERE queue = %(queue)s AND tier = %(tier)s AND state + 0 = 1 AND grp IS NULL ORDER BY since_ms LIMIT 1),
        0
    ) + (SELECT count(*) FROM grouped) + (
        SELECT count(*) FROM (
            SELECT 1 FROM penstock.line WHERE queue = %(queue)s AND open_tier = %(tier)s LIMIT 10000
        ) AS open
    ))::integer AS turns,
    (SELECT count(*) FROM grouped WHERE is_noisy)::integer AS noisy_turns,
    coalesce(%(grp)s::bytea = ANY ((SELECT names FROM noise)::bytea[]), false) AS is_noisy,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM grouped AS g CROSS JOIN LATERAL (
                SELECT 1 FROM penstock.marked AS m
                WHERE m.queue = %(queue)s AND m.grp = g.grp AND m.tier = %(tier)s AND m.turn IS NOT NULL AND m.state + 0 = 1
                LIMIT 10000
            ) AS m
            WHERE g.is_noisy AND %(grp)s::bytea = ANY ((SELECT names FROM noise)::bytea[])
        ) AS message
    )::integer AS noisy_waiting
