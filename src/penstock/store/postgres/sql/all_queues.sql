SELECT number, name, settings, version, grave, created_at_ms FROM penstock.queue
WHERE deleted_at_ms IS NULL ORDER BY number
