-- Make a queue; answers with its number, or with NULL if there is one of this name. Its sequences belong to the owner of
-- the schema, so this runs with the owner's rights, for every role that may insert a queue.
CREATE OR REPLACE FUNCTION penstock.create_queue(p_name text, p_settings text, p_grave text, p_now bigint)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_number integer;
    v_lanes oid[] := '{}';
    v_kind text;
    v_lane text;
    v_range integer;
BEGIN
    IF NOT has_table_privilege(session_user, 'penstock.queue', 'INSERT') THEN
        RAISE EXCEPTION '% may not make queues', session_user USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- One queue is made at a time, and nothing gives this database another range of numbers meanwhile.
    PERFORM 1 FROM penstock.moment FOR UPDATE;
    IF EXISTS (SELECT 1 FROM penstock.queue WHERE name = p_name AND deleted_at_ms IS NULL) THEN
        RETURN NULL;
    END IF;
    v_number := nextval('penstock.queue_number');
    SELECT queue_range INTO v_range FROM penstock.moment WHERE is_range_claimed;
    IF v_range <> v_number >> 24 THEN
        IF EXISTS (SELECT 1 FROM penstock.queue) THEN
            RAISE EXCEPTION 'all numbers for queues of this database are given' USING ERRCODE = 'program_limit_exceeded';
        END IF;
        v_number := setval('penstock.queue_number', v_range << 24 | 1);
    END IF;
    -- Behind the lanes the floors of the turns in which groups are served, which a FIFO queue does not have.
    FOREACH v_kind IN ARRAY CASE WHEN (p_settings::json ->> 'is_fifo')::boolean IS TRUE
        THEN ARRAY['lane'] ELSE ARRAY['lane', 'floor'] END
    LOOP
        FOR v_tier IN 0 .. 4 LOOP
            v_lane := format('penstock.%s_%s_%s', v_kind, v_number, v_tier);
            EXECUTE format('CREATE SEQUENCE %s MINVALUE 0', v_lane);
            EXECUTE format('GRANT USAGE, SELECT, UPDATE ON SEQUENCE %s TO %I', v_lane, session_user);
            v_lanes := v_lanes || v_lane::regclass::oid;
        END LOOP;
    END LOOP;
    INSERT INTO penstock.queue (number, name, settings, version, grave, lanes, created_at_ms)
    VALUES (v_number, p_name, p_settings, nextval('penstock.queue_version'), p_grave, v_lanes, p_now);
    PERFORM penstock.size_room(v_number, coalesce((p_settings::json ->> 'size_max')::bigint, 0));
    INSERT INTO penstock.queue_lock (queue) VALUES (v_number);
    RETURN v_number;
END $$
