-- Forget what is too old to be asked for: ids, senders, answers, servers that have ended, and time that half an hour has
-- halved to nothing.
CREATE OR REPLACE FUNCTION penstock.tidy(p_now bigint, p_sender_ms bigint, p_senders_max integer, p_operation_ms bigint)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM penstock.dedup WHERE until_ms <= p_now;
    DELETE FROM penstock.tenant WHERE minute <= p_now / 60000 - 30;
    DELETE FROM penstock.tenant_held WHERE held = 0 AND stretch <= p_now / 10000 - 180;
    DELETE FROM penstock.purge WHERE ended_at_ms <= p_now - p_operation_ms;
    DELETE FROM penstock.operation WHERE at_ms <= p_now - p_operation_ms;
    DELETE FROM penstock.node WHERE beat_at < clock_timestamp() - interval '1 day';
    WITH silent AS (
        DELETE FROM penstock.sender WHERE seen_at_ms <= p_now - p_sender_ms RETURNING queue, id
    ), extra AS (
        DELETE FROM penstock.sender AS s USING (
            SELECT queue, id, row_number() OVER (PARTITION BY queue ORDER BY seen_at_ms DESC) AS nth
            FROM penstock.sender
        ) AS ranked
        WHERE ranked.nth > p_senders_max AND s.queue = ranked.queue AND s.id = ranked.id RETURNING s.queue, s.id
    )
    DELETE FROM penstock.sent AS t USING (SELECT * FROM silent UNION SELECT * FROM extra) AS gone
    WHERE t.queue = gone.queue AND t.sender = gone.id;
END $$
