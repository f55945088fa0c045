-- Every verb begins here: nothing changes or deletes the queue until the transaction ends, and its settings are known.
--
-- The lock of a queue is the table lock of its first sequence, which PostgreSQL takes to read the last value and keeps until
-- the transaction ends. It conflicts with that of `enter_alone` only. Unlike an advisory lock it needs a right on the
-- sequence, so a role that may only connect cannot hold a queue up. The verbs of the shortest way take it by themselves.
CREATE OR REPLACE FUNCTION penstock.enter(p_queue integer, p_version bigint) RETURNS oid[]
LANGUAGE plpgsql AS $$
DECLARE
    v_lanes oid[];
    v_entered bigint := pg_sequence_last_value(to_regclass('penstock.lane_' || p_queue || '_0'));
BEGIN
    SELECT lanes INTO v_lanes FROM penstock.queue
    WHERE number = p_queue AND version = p_version AND deleted_at_ms IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the queue was changed' USING ERRCODE = 'PS001';
    END IF;
    RETURN v_lanes;
END $$
