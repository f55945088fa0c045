-- How much is in a queue, however much that is.
SELECT
    ARRAY(
        SELECT (SELECT count(*) FROM penstock.ready AS r WHERE r.queue = %(queue)s AND r.tier = tier.tier)
            + (SELECT count(*) FROM penstock.marked AS m
               WHERE m.queue = %(queue)s AND m.tier = tier.tier AND m.state = 1)
        FROM generate_series(0, 4) AS tier (tier) ORDER BY tier.tier
    ) AS ready,
    (SELECT coalesce(sum(held), 0)::bigint FROM penstock.lease WHERE queue = %(queue)s) AS leased,
    (SELECT count(*) FROM penstock.marked WHERE queue = %(queue)s AND state = 2) AS delayed,
    (SELECT count(*) FROM penstock.marked WHERE queue = %(queue)s AND state = 4) AS stuck,
    (SELECT count(*) FROM penstock.noisy(%(queue)s, %(now)s) AS noisy JOIN penstock.marked AS m
        ON m.queue = %(queue)s AND m.grp = noisy.grp AND m.turn IS NOT NULL AND m.state = 1) AS noisy_ready
