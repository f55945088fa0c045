-- Refuse messages that a queue has no room for. The detail has how many come, how many may be there, and are.
CREATE OR REPLACE FUNCTION penstock.check_room(p_queue integer, p_room bigint, p_count bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_live bigint;
BEGIN
    -- Two that send at once may not both take the last place.
    PERFORM 1 FROM penstock.queue_lock WHERE queue = p_queue FOR UPDATE;
    v_live := penstock.live(p_queue, p_room + 1);
    IF v_live + p_count > p_room THEN
        RAISE EXCEPTION 'no room' USING ERRCODE = 'PS002', DETAIL = format('%s %s %s', p_count, p_room, v_live);
    END IF;
END $$
