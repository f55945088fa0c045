-- The receipts of messages that are leased, by where they were first sent to; with %(outlives)s also those of leases that have
-- lapsed, of messages that were not leased since.
SELECT w.n, l.lease, e.token, l.row
FROM unnest(%(homes)s, %(keys)s) WITH ORDINALITY AS w (home, key, n)
JOIN penstock.lease AS e
    ON e.queue = %(queue)s AND (e.keys IS NULL OR position(int8send(w.key) IN e.keys) > 0)
CROSS JOIN LATERAL penstock.in_lease(e.number, false) AS l
WHERE coalesce(l.home, %(queue)s) = w.home AND coalesce(l.home_key, l.key) = w.key
    AND coalesce(l.until_ms, e.until_ms) > %(now)s
UNION ALL
SELECT w.n, m.lease, m.token, m.lease_row
FROM unnest(%(homes)s, %(keys)s) WITH ORDINALITY AS w (home, key, n)
JOIN penstock.marked AS m ON m.queue = %(queue)s AND m.key = w.key AND m.home IS NULL
WHERE %(outlives)s AND w.home = %(queue)s AND m.lease IS NOT NULL
UNION ALL
SELECT w.n, m.lease, m.token, m.lease_row
FROM unnest(%(homes)s, %(keys)s) WITH ORDINALITY AS w (home, key, n)
JOIN penstock.marked AS m ON m.home = w.home AND m.home_key = w.key AND m.queue = %(queue)s
WHERE %(outlives)s AND m.lease IS NOT NULL
