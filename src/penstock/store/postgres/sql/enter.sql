-- Every verb begins here: nobody changes or deletes the queue until the transaction ends, and its settings are known.
CREATE OR REPLACE FUNCTION penstock.enter(p_queue integer, p_version bigint) RETURNS oid[]
LANGUAGE plpgsql AS $$
DECLARE
    v_lanes oid[];
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtext('penstock.queue'), p_queue);
    SELECT lanes INTO v_lanes FROM penstock.queue
    WHERE number = p_queue AND version = p_version AND deleted_at_ms IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the queue was changed' USING ERRCODE = 'PS001';
    END IF;
    RETURN v_lanes;
END $$
