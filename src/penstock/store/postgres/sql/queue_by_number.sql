SELECT name FROM penstock.queue WHERE number = %s AND deleted_at_ms IS NULL
