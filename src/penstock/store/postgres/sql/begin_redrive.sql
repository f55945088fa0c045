-- Of those that have ended the oldest go. Run again with the same id it is begun once.
WITH forgotten AS (
    DELETE FROM penstock.redrive
    WHERE id IN (
        SELECT id FROM penstock.redrive
        WHERE ended_at_ms IS NOT NULL ORDER BY ended_at_ms DESC OFFSET %(kept_max)s
    )
)
INSERT INTO penstock.redrive AS begun (id, queue, ordered, state, progress, started_at_ms, runner, heard_at_ms)
SELECT %(id)s, %(queue)s, %(order)s::json, %(state)s, %(progress)s::json, %(now_ms)s, %(runner)s, %(now_ms)s
WHERE (SELECT count(*) FROM penstock.redrive WHERE ended_at_ms IS NULL AND id <> %(id)s) < %(running_max)s
ON CONFLICT (id) DO UPDATE SET heard_at_ms = begun.heard_at_ms
RETURNING id
