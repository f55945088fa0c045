-- Make a queue; answers with its number, or with NULL if there is one of this name.
CREATE OR REPLACE FUNCTION penstock.create_queue(p_name text, p_settings text, p_grave text, p_now bigint)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_number integer;
    v_lanes oid[] := '{}';
    v_lane text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('penstock.name'), hashtext(p_name));
    IF EXISTS (SELECT 1 FROM penstock.queue WHERE name = p_name AND deleted_at_ms IS NULL) THEN
        RETURN NULL;
    END IF;
    v_number := nextval('penstock.queue_number');
    FOR v_tier IN 0 .. 4 LOOP
        v_lane := format('penstock.lane_%s_%s', v_number, v_tier);
        EXECUTE format('CREATE SEQUENCE %s MINVALUE 0', v_lane);
        v_lanes := v_lanes || v_lane::regclass::oid;
    END LOOP;
    INSERT INTO penstock.queue (number, name, settings, version, grave, lanes, created_at_ms)
    VALUES (v_number, p_name, p_settings, nextval('penstock.queue_version'), p_grave, v_lanes, p_now);
    RETURN v_number;
END $$
