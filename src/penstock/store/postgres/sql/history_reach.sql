-- The message behind so many others, from an offset on and before another; no row if there are not so many.
SELECT
    at_offset + generate_series(
        greatest(0, %(first)s::bigint - at_offset), least(coalesce(packed, 1), %(end)s::bigint - at_offset) - 1
    )
FROM penstock.history
WHERE at_offset >= penstock.history_from(%(first)s) AND at_offset < %(end)s
ORDER BY at_offset OFFSET %(looked)s LIMIT 1
