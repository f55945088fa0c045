SELECT number, name, settings, version, grave, created_at_ms FROM penstock.queue
WHERE name = %s AND deleted_at_ms IS NULL
