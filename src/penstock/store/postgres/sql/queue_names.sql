SELECT number, name, deleted_at_ms IS NOT NULL FROM penstock.queue WHERE number = ANY (%s)
