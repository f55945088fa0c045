SELECT q.* FROM unnest(%s) AS wanted (number) CROSS JOIN LATERAL (
    SELECT number, name, settings, version, grave, created_at_ms FROM penstock.queue
    WHERE number = wanted.number AND deleted_at_ms IS NULL OFFSET 0
) AS q
