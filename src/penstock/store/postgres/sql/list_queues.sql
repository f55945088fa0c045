SELECT name FROM penstock.queue
WHERE deleted_at_ms IS NULL AND name > %(after)s AND starts_with(name, %(prefix)s)
ORDER BY name LIMIT %(most)s
