-- The receipts of messages that are leased, by where they were first sent to; with %(outlives)s also those of leases that have
-- lapsed, of messages that were not leased since.
SELECT w.n, l.lease, e.token, l.row
FROM unnest(%(homes)s, %(keys)s) WITH ORDINALITY AS w (home, key, n)
CROSS JOIN LATERAL penstock.leases_of(%(queue)s, w.home, w.key) AS holder (number)
CROSS JOIN LATERAL (SELECT token, until_ms FROM penstock.lease WHERE number = holder.number OFFSET 0) AS e
CROSS JOIN LATERAL penstock.in_lease(holder.number, false) AS l
WHERE coalesce(l.home, %(queue)s) = w.home AND coalesce(l.home_key, l.key) = w.key
    AND coalesce(l.until_ms, e.until_ms) > %(now)s
UNION ALL
SELECT w.n, m.lease, m.token, m.lease_row
FROM unnest(%(homes)s, %(keys)s) WITH ORDINALITY AS w (home, key, n)
CROSS JOIN LATERAL (
    SELECT lease, token, lease_row FROM penstock.marked
    WHERE queue = %(queue)s AND key = w.key AND home IS NULL AND lease IS NOT NULL OFFSET 0
) AS m
WHERE %(outlives)s AND w.home = %(queue)s
UNION ALL
SELECT w.n, m.lease, m.token, m.lease_row
FROM unnest(%(homes)s, %(keys)s) WITH ORDINALITY AS w (home, key, n)
CROSS JOIN LATERAL (
    SELECT lease, token, lease_row FROM penstock.marked
    WHERE home = w.home AND home_key = w.key AND queue + 0 = %(queue)s AND lease IS NOT NULL OFFSET 0
) AS m
WHERE %(outlives)s
