-- Messages that came from other queues, in the order of their coming, and may be moved.
SELECT m.key, m.home, m.home_key, home.name, home.number, m.ordinal
FROM penstock.marked AS m LEFT JOIN penstock.queue AS home ON home.number = m.home AND home.deleted_at_ms IS NULL
WHERE m.queue = %(queue)s AND m.home IS NOT NULL AND m.state IN (1, 2)
    AND m.ordinal > %(after)s
ORDER BY m.ordinal LIMIT %(most)s
