-- The receipts of messages that are leased, by where they were first sent to.
SELECT w.n, l.lease, e.token, l.row
FROM unnest(%(homes)s, %(keys)s) WITH ORDINALITY AS w (home, key, n)
JOIN penstock.lease AS e ON e.queue = %(queue)s
JOIN penstock.leased AS l
    ON l.lease = e.number AND coalesce(l.home, %(queue)s) = w.home AND coalesce(l.home_key, l.key) = w.key
WHERE coalesce(l.until_ms, e.until_ms) > %(now)s
