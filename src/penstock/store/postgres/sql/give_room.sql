-- Give room back that settled messages had; a queue without a size has none. What is missing in slot 0 is made up first.
CREATE OR REPLACE FUNCTION penstock.give_room(p_queue integer, p_count bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE penstock.room SET free = free + p_count WHERE queue = p_queue AND slot = coalesce(
        (SELECT slot FROM penstock.room WHERE queue = p_queue AND slot = 0 AND free < 0),
        (SELECT slot FROM penstock.room WHERE queue = p_queue LIMIT 1 FOR UPDATE SKIP LOCKED),
        (pg_backend_pid() % 8)::smallint
    );
END $$
