-- Those of these queues in which tidying has something to do: a lease lapses, a message wakes, ages, is spent or too old, or an
-- escalation ends. Aging times and bounds are five for each queue.
SELECT w.number
FROM unnest(%(numbers)s, %(looked)s, %(sent_until)s) WITH ORDINALITY AS w (number, looked, sent_until, nth)
WHERE coalesce(
    (
        SELECT true FROM penstock.lease
        WHERE queue = w.number AND wakes_at_ms > w.looked AND wakes_at_ms <= %(now)s ORDER BY wakes_at_ms LIMIT 1
    ),
    (
        SELECT true FROM penstock.marked
        WHERE queue = w.number AND state = 2 AND visible_at_ms <= %(now)s ORDER BY visible_at_ms LIMIT 1
    ),
    (
        SELECT true FROM penstock.marked
        WHERE queue = w.number AND escalated_until_ms > 0 AND escalated_until_ms <= %(now)s
        ORDER BY escalated_until_ms LIMIT 1
    ),
    (SELECT true FROM penstock.marked WHERE queue = w.number AND state = 4 ORDER BY visible_at_ms LIMIT 1),
    (
        SELECT true FROM penstock.marked
        WHERE queue = w.number AND sent_at_ms <= w.sent_until ORDER BY sent_at_ms LIMIT 1
    ),
    (
        SELECT true FROM generate_series(0, 4) AS t (tier)
        CROSS JOIN LATERAL (
            SELECT (%(aging_ms)s)[(w.nth - 1) * 5 + t.tier + 1] AS aging_ms, (%(bounds)s)[(w.nth - 1) * 5 + t.tier + 1] AS bound
        ) AS own
        WHERE (
            SELECT sent_at_ms FROM penstock.ready
            WHERE queue = w.number AND tier = t.tier AND number >= own.bound ORDER BY number LIMIT 1
        ) <= greatest(w.sent_until, CASE WHEN own.aging_ms > 0 AND t.tier > 0 THEN %(now)s - own.aging_ms END)
            OR own.aging_ms > 0 AND t.tier > 0 AND (
                SELECT since_ms FROM penstock.marked
                WHERE queue = w.number AND tier = t.tier AND state = 1 ORDER BY since_ms LIMIT 1
            ) <= %(now)s - own.aging_ms
        LIMIT 1
    ),
    false
)
