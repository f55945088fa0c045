-- Messages of one tier that have nothing of their own: the way of most. Answers with their keys, 8 bytes each.
CREATE OR REPLACE FUNCTION penstock.send_plain(
    p_queue integer, p_version bigint, p_now bigint, p_tier smallint, p_bodies bytea[], p_attributes bytea[],
    p_room bigint, p_operation bigint
) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    v_keys bytea;
    v_entered bigint;
BEGIN
    -- What `enter` does, in as few statements as there can be: decision 24. The transaction has its number before a message
    -- has one: a lease relies on it that a lower number belongs to an older transaction.
    v_entered := pg_sequence_last_value(to_regclass('penstock.lane_' || p_queue || '_0'));
    IF pg_current_xact_id() IS NULL THEN
        RETURN NULL;
    END IF;
    IF p_room IS NOT NULL THEN
        PERFORM penstock.enter(p_queue, p_version);
        PERFORM penstock.take_room(p_queue, p_room, cardinality(p_bodies));
    END IF;
    WITH added AS (
        INSERT INTO penstock.ready (queue, tier, number, sent_at_ms, body, attributes)
        -- A number is drawn outside of where arrays are taken apart: that goes on until there is nothing, and would draw one more.
        SELECT p_queue, p_tier, nextval(lane), p_now, body, attributes FROM (
            SELECT lanes[p_tier + 1] AS lane, unnest(p_bodies) AS body, unnest(p_attributes) AS attributes
            FROM penstock.queue WHERE number = p_queue AND version = p_version AND deleted_at_ms IS NULL
        ) AS draft
        RETURNING number
    )
    SELECT string_agg(int8send(number << 3 | p_tier), '') INTO v_keys FROM added;
    IF v_keys IS NULL THEN
        RAISE EXCEPTION 'the queue was changed' USING ERRCODE = 'PS001';
    END IF;
    IF p_operation IS NOT NULL THEN
        INSERT INTO penstock.operation (id, at_ms, answer) VALUES (p_operation, p_now, v_keys);
    END IF;
    RETURN v_keys;
END $$
