-- Change how many messages more a queue may hold, and share that among its slots. The caller has all of them locked.
CREATE OR REPLACE FUNCTION penstock.spread_room(p_queue integer, p_change bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_free bigint := (SELECT sum(free) + p_change FROM penstock.room WHERE queue = p_queue);
BEGIN
    -- What is below zero is in one slot, where all that is given goes first.
    UPDATE penstock.room
    SET free = CASE WHEN v_free < 0 THEN 0 ELSE v_free / 8 END
        + CASE WHEN slot > 0 THEN 0 WHEN v_free < 0 THEN v_free ELSE v_free % 8 END
    WHERE queue = p_queue;
END $$
