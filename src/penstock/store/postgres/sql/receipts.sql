-- The receipts of messages that are leased, by where they were first sent to.
SELECT w.n, l.lease, e.token, l.row
FROM unnest(%(homes)s, %(keys)s) WITH ORDINALITY AS w (home, key, n)
JOIN penstock.lease AS e
    ON e.queue = %(queue)s AND (e.keys IS NULL OR position(int8send(w.key) IN e.keys) > 0)
CROSS JOIN LATERAL penstock.in_lease(e.number, false) AS l
WHERE coalesce(l.home, %(queue)s) = w.home AND coalesce(l.home_key, l.key) = w.key
    AND coalesce(l.until_ms, e.until_ms) > %(now)s
