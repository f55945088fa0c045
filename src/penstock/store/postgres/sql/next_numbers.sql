-- The number that the next message of each tier gets, at a moment without senders: all below were given.
CREATE OR REPLACE FUNCTION penstock.next_numbers(p_queue integer, p_version bigint) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_lane oid;
    v_next bigint;
    v_found bigint[] := '{}';
    v_lanes oid[];
BEGIN
    v_lanes := penstock.enter_alone(p_queue, p_version);
    FOREACH v_lane IN ARRAY v_lanes[1:5] LOOP
        EXECUTE format('SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END FROM %s', v_lane::regclass)
        INTO v_next;
        v_found := v_found || v_next;
    END LOOP;
    RETURN v_found;
END $$
