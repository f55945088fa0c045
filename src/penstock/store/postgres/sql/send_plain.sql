-- Messages of one tier that have nothing of their own: the way of most. Answers with their keys, 8 bytes each.
CREATE OR REPLACE FUNCTION penstock.send_plain(
    p_queue integer, p_version bigint, p_now bigint, p_tier smallint, p_bodies bytea[], p_attributes bytea[],
    p_room bigint, p_operation bigint
) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    v_lane regclass := (penstock.enter(p_queue, p_version))[p_tier + 1];
    v_keys bytea;
BEGIN
    -- Before any number is drawn: a lease relies on it that a lower number belongs to an older transaction.
    PERFORM pg_current_xact_id();
    IF p_room IS NOT NULL THEN
        PERFORM penstock.check_room(p_queue, p_room, cardinality(p_bodies));
    END IF;
    WITH added AS (
        INSERT INTO penstock.ready (queue, tier, number, sent_at_ms, body, attributes)
        SELECT p_queue, p_tier, nextval(v_lane), p_now, body, attributes
        FROM unnest(p_bodies, p_attributes) AS draft (body, attributes)
        RETURNING number
    )
    SELECT string_agg(int8send(number << 3 | p_tier), '') INTO v_keys FROM added;
    IF p_operation IS NOT NULL THEN
        INSERT INTO penstock.operation (id, at_ms, answer) VALUES (p_operation, p_now, v_keys);
    END IF;
    RETURN v_keys;
END $$
