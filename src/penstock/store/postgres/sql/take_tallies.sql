-- Take what was counted since the last time, by the names of queues. What others take at this moment is left to them.
WITH taken AS (
    DELETE FROM penstock.tally WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM penstock.tally LIMIT 10000 FOR UPDATE SKIP LOCKED
    )) RETURNING *
)
SELECT queue, sum(lapsed)::bigint, sum(promoted)::bigint FROM taken GROUP BY queue
