-- Take room for messages, or refuse them. p_room is how many a queue may hold for these to be let in; if that is its size, a
-- slot with enough will do. The detail of a refusal has how many come, how many may be there, and are.
CREATE OR REPLACE FUNCTION penstock.take_room(p_queue integer, p_room bigint, p_count bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_free bigint;
    v_size bigint;
BEGIN
    UPDATE penstock.room SET free = free - p_count WHERE queue = p_queue AND slot = (
        SELECT slot FROM penstock.room
        WHERE queue = p_queue AND free >= p_count AND size = p_room
        LIMIT 1 FOR UPDATE SKIP LOCKED
    );
    IF FOUND THEN
        RETURN;
    END IF;
    -- Near the limit, or with a reserve for other tiers, all slots count.
    v_free := penstock.lock_room(p_queue);
    SELECT size INTO v_size FROM penstock.room WHERE queue = p_queue LIMIT 1;
    IF v_free - p_count < v_size - p_room THEN
        RAISE EXCEPTION 'no room' USING ERRCODE = 'PS002', DETAIL = format('%s %s %s', p_count, p_room, v_size - v_free);
    END IF;
    PERFORM penstock.spread_room(p_queue, -p_count);
END $$
