-- What the first so many rows have, from an offset on and before another: messages, bytes, and where the last one ends.
SELECT sum(messages), sum(size), max(behind) FROM (
    SELECT
        at_offset + coalesce(packed, 1) AS behind,
        (least(coalesce(packed, 1), %(end)s::bigint - at_offset) - greatest(0, %(first)s::bigint - at_offset))::integer
            AS messages,
        coalesce(octet_length(body), 0) + coalesce(octet_length(attributes), 0) AS size
    FROM penstock.history
    WHERE at_offset >= penstock.history_from(%(first)s) AND at_offset < %(end)s
    ORDER BY at_offset LIMIT %(looked)s
) AS looked
