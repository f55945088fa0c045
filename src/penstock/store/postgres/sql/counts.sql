WITH noisy AS MATERIALIZED (SELECT * FROM penstock.noisy(%(queue)s, %(now)s))
SELECT
    -- What waits may be so much that it is not counted every time.
    CASE WHEN %(is_counted)s THEN ARRAY(
        SELECT (SELECT count(*) FROM penstock.ready AS r WHERE r.queue = %(queue)s AND r.tier = tier.tier)
            + (SELECT count(*) FROM penstock.marked AS m
               WHERE m.queue = %(queue)s AND m.tier = tier.tier AND m.state = 1)
        FROM generate_series(0, 4) AS tier (tier) ORDER BY tier.tier
    ) END AS ready,
    (SELECT coalesce(sum(held), 0)::bigint FROM penstock.lease WHERE queue = %(queue)s) AS leased,
    (SELECT count(*) FROM penstock.marked WHERE queue = %(queue)s AND state <> 1 AND state <> 4) AS delayed,
    ARRAY(
        SELECT least(
            (SELECT r.sent_at_ms FROM penstock.ready AS r
             WHERE r.queue = %(queue)s AND r.tier = tier.tier ORDER BY r.number LIMIT 1),
            (SELECT m.sent_at_ms FROM penstock.marked AS m
             WHERE m.queue = %(queue)s AND m.tier = tier.tier AND m.state = 1 ORDER BY m.since_ms LIMIT 1)
        )
        FROM generate_series(0, 4) AS tier (tier) ORDER BY tier.tier
    ) AS oldest,
    (SELECT count(*) FROM penstock.marked WHERE queue = %(queue)s AND state = 4) AS stuck,
    (SELECT min(since_ms) FROM penstock.marked WHERE queue = %(queue)s AND state = 4) AS stuck_since_ms,
    (SELECT count(*) FROM noisy) AS noisy_groups,
    (SELECT count(*) FROM noisy JOIN penstock.marked AS m
        ON m.queue = %(queue)s AND m.grp = noisy.grp AND m.turn IS NOT NULL AND m.state = 1) AS noisy_ready,
    (SELECT coalesce(sum(held), 0)::bigint FROM noisy) AS noisy_leased
