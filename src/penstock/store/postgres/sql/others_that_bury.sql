SELECT name FROM penstock.queue WHERE grave = %s AND deleted_at_ms IS NULL AND number <> ALL (%s) ORDER BY name LIMIT 1
