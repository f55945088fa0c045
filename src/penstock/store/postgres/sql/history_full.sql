-- Behind which row a page is full of bytes, from an offset on and before another; NULL if it is not. A pack that begins
-- before the offset does not count: how much of it is wanted is not known here.
SELECT min(at_offset) + 1 FROM (
    SELECT at_offset, sum(size) OVER (ORDER BY at_offset ROWS UNBOUNDED PRECEDING) AS size
    FROM (
        SELECT at_offset, coalesce(octet_length(body), 0) + coalesce(octet_length(attributes), 0) AS size
        FROM penstock.history
        WHERE at_offset >= %(first)s AND at_offset < %(end)s
            AND (%(queue)s::integer IS NULL OR queue = %(queue)s)
            AND (%(from_ms)s::bigint IS NULL OR settled_at_ms >= %(from_ms)s)
    ) AS sought
) AS counted
WHERE size >= %(size)s
