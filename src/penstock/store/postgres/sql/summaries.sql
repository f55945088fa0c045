-- What there is of each of these queues: its row, unless that is as it was known, and how much is in it. Of each kind no more
-- is counted than asked for, so that a look costs the same at any backlog.
SELECT
    q.number, q.name, CASE WHEN q.version <> w.version THEN q.settings END, q.version, q.grave, q.created_at_ms,
    (SELECT number FROM penstock.queue WHERE name = q.grave AND deleted_at_ms IS NULL) AS grave_number,
    ARRAY(
        SELECT (
            SELECT count(*) FROM (
                SELECT 1 FROM penstock.ready WHERE queue = q.number AND tier = t.tier ORDER BY number LIMIT %(most)s
            ) AS message
        )::integer
        FROM generate_series(0, 4) AS t (tier) ORDER BY t.tier
    ) AS plain,
    ARRAY(
        SELECT (
            SELECT count(*) FROM (
                SELECT 1 FROM penstock.marked WHERE queue = q.number AND tier = t.tier AND state = 1
                ORDER BY since_ms LIMIT %(most)s
            ) AS message
        )::integer
        FROM generate_series(0, 4) AS t (tier) ORDER BY t.tier
    ) AS marked,
    ARRAY(
        SELECT (
            SELECT sent_at_ms FROM penstock.ready WHERE queue = q.number AND tier = t.tier ORDER BY number LIMIT 1
        )
        FROM generate_series(0, 4) AS t (tier) ORDER BY t.tier
    ) AS plain_sent_ms,
    ARRAY(
        SELECT (
            SELECT sent_at_ms FROM penstock.marked WHERE queue = q.number AND tier = t.tier AND state = 1
            ORDER BY since_ms LIMIT 1
        )
        FROM generate_series(0, 4) AS t (tier) ORDER BY t.tier
    ) AS marked_sent_ms,
    ARRAY(
        SELECT (
            SELECT since_ms FROM penstock.marked WHERE queue = q.number AND tier = t.tier AND state = 1
            ORDER BY since_ms LIMIT 1
        )
        FROM generate_series(0, 4) AS t (tier) ORDER BY t.tier
    ) AS marked_since_ms,
    held.leases, held.leased,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM penstock.marked WHERE queue = q.number AND state = 2 ORDER BY visible_at_ms LIMIT %(most)s
        ) AS message
    )::integer AS delayed,
    spent.stuck, spent.since_ms,
    -- Whether something has become due: a lease lapses, a message wakes, an escalation ends.
    coalesce(
        (
            SELECT true FROM penstock.lease
            WHERE queue = q.number AND wakes_at_ms > w.looked AND wakes_at_ms <= %(now)s ORDER BY wakes_at_ms LIMIT 1
        ),
        (
            SELECT true FROM penstock.marked
            WHERE queue = q.number AND state = 2 AND visible_at_ms <= %(now)s ORDER BY visible_at_ms LIMIT 1
        ),
        (
            SELECT true FROM penstock.marked
            WHERE queue = q.number AND escalated_until_ms > 0 AND escalated_until_ms <= %(now)s
            ORDER BY escalated_until_ms LIMIT 1
        ),
        false
    ) AS is_due,
    noise.groups, (
        SELECT count(*) FROM (
            SELECT 1 FROM unnest(noise.names) AS n (grp) CROSS JOIN LATERAL (
                SELECT 1 FROM penstock.marked
                WHERE queue = q.number AND grp = n.grp AND turn IS NOT NULL AND state = 1 LIMIT %(most)s
            ) AS m
            LIMIT %(most)s
        ) AS message
    )::integer AS noisy_ready, noise.held,
    (
        -- Packed, the first eight bytes are the time of the first.
        SELECT coalesce(
            ('x' || encode(substr(e.sent_ats_ms, 1, 8), 'hex'))::bit(64)::bigint,
            (SELECT min(l.sent_at_ms) FROM penstock.leased AS l WHERE l.lease = e.number)
        ) FROM penstock.lease AS e WHERE e.number = held.oldest
    ) AS leased_sent_ms
FROM unnest(%(names)s, %(versions)s, %(looked)s) AS w (name, version, looked)
CROSS JOIN LATERAL (
    SELECT number, name, settings, version, grave, created_at_ms FROM penstock.queue
    WHERE name = w.name AND deleted_at_ms IS NULL OFFSET 0
) AS q
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS leases, coalesce(sum(lease.held), 0)::bigint AS leased,
        (array_agg(lease.number ORDER BY lease.leased_at_ms) FILTER (WHERE lease.held > 0))[1] AS oldest
    FROM (
        SELECT e.number, e.held, e.leased_at_ms FROM penstock.lease AS e WHERE e.queue = q.number ORDER BY e.wakes_at_ms LIMIT %(most)s
    ) AS lease
) AS held
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS stuck, min(since_ms) AS since_ms FROM (
        SELECT since_ms FROM penstock.marked WHERE queue = q.number AND state = 4 ORDER BY visible_at_ms LIMIT %(most)s
    ) AS message
) AS spent
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS groups, coalesce(sum(n.held), 0)::bigint AS held, array_agg(n.grp) AS names
    FROM penstock.noisy(q.number, %(now)s) AS n
    -- Not of a queue that has no groups.
    WHERE coalesce(
        (SELECT true FROM penstock.leased AS l WHERE l.queue = q.number AND l.turn IS NOT NULL ORDER BY l.grp LIMIT 1),
        (SELECT true FROM penstock.tenant AS t WHERE t.queue = q.number AND t.is_loud ORDER BY t.grp LIMIT 1),
        false
    )
) AS noise
