SELECT number, name, version FROM penstock.queue
WHERE deleted_at_ms IS NULL AND number > %(after)s ORDER BY number LIMIT %(most)s
