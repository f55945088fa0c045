SELECT p.id, q.name FROM penstock.purge AS p JOIN penstock.queue AS q ON q.number = p.queue
WHERE p.ended_at_ms IS NULL AND p.turned_at_ms <= %s ORDER BY p.turned_at_ms
