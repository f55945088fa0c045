-- The same, of those that are named by where they were first sent to.
SELECT m.key, m.home, m.home_key, home.name, home.number
FROM unnest(%(homes)s::integer[], %(keys)s::bigint[]) AS w (home, key) CROSS JOIN LATERAL (
    SELECT key, home, home_key, ordinal FROM penstock.marked
    WHERE home = w.home AND home_key = w.key AND queue + 0 = %(queue)s AND state IN (1, 2) OFFSET 0
) AS m
LEFT JOIN penstock.queue AS home ON home.number = m.home AND home.deleted_at_ms IS NULL
ORDER BY m.ordinal
