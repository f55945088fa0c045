-- Make the room of a queue that is of another size now, or of none (0). The caller has the queue for itself.
CREATE OR REPLACE FUNCTION penstock.size_room(p_queue integer, p_size bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_before bigint;
BEGIN
    SELECT size INTO v_before FROM penstock.room WHERE queue = p_queue LIMIT 1;
    IF p_size = v_before OR p_size = 0 AND v_before IS NULL THEN
        RETURN;
    END IF;
    IF p_size = 0 THEN
        DELETE FROM penstock.room WHERE queue = p_queue;
        RETURN;
    END IF;
    IF v_before IS NULL THEN
        -- Counted this once, and kept from now on.
        v_before := penstock.live(p_queue, 9223372036854775806);
        INSERT INTO penstock.room (queue, slot, free, size)
        SELECT p_queue, slot, CASE slot WHEN 0 THEN -v_before ELSE 0 END, 0 FROM generate_series(0, 7) AS slot;
        v_before := 0;
    END IF;
    PERFORM penstock.spread_room(p_queue, p_size - v_before);
    UPDATE penstock.room SET size = p_size WHERE queue = p_queue;
END $$
