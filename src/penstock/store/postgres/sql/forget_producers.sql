-- Forget producers that were not heard of since a time.
CREATE OR REPLACE FUNCTION penstock.forget_producers(p_before bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    DELETE FROM penstock.topic_producer WHERE last_at_ms < p_before;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$
