-- Settle the first so many messages of one lease: the way of a healthy ack. Answers with how many it settled,
-- or with NULL if it is not so simple and nothing was done.
CREATE OR REPLACE FUNCTION penstock.ack_lease(
    p_queue integer, p_version bigint, p_now bigint, p_lease bigint, p_token bigint, p_count integer,
    p_history smallint, p_period integer, p_has_size boolean, p_operation bigint
) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_leased_at_ms bigint;
    v_is_packed boolean;
    v_front bigint := pg_current_xact_id()::text::bigint << 24;
    v_count integer;
    v_ids bytea[];
    v_tenants bytea[];
    v_entered bigint;
BEGIN
    -- What `enter` does, in as few statements as there can be.
    v_entered := pg_sequence_last_value(to_regclass('penstock.lane_' || p_queue || '_0'));
    WITH gone AS (
        -- By its number: to the planner, all leases of a queue look no worse while the table is small. So + 0.
        DELETE FROM penstock.lease
        WHERE number = p_lease AND queue + 0 = p_queue AND token = p_token AND until_ms > p_now AND held = p_count
            AND NOT has_own_ends
            AND EXISTS (
                SELECT 1 FROM penstock.queue WHERE number = p_queue AND version = p_version AND deleted_at_ms IS NULL
            )
        RETURNING *
    ), told AS (
        -- The transaction writes no other history, so the first of them has row 0.
        INSERT INTO penstock.history (
            period, at_offset, queue, key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms, deliveries, tier,
            ending, packed, keys, sent_ats_ms, body, body_sizes, attributes, attribute_sizes
        )
        SELECT
            p_period, v_front, p_queue, 0, 0, leased_at_ms, leased_at_ms, p_now, 1, 0, 1, held, keys, sent_ats_ms,
            CASE WHEN p_history = 2 THEN bodies END, CASE WHEN p_history = 2 THEN body_sizes END,
            CASE WHEN p_history = 2 THEN attributes END, CASE WHEN p_history = 2 THEN attribute_sizes END
        FROM gone WHERE keys IS NOT NULL AND p_history > 0
    )
    SELECT leased_at_ms, keys IS NOT NULL INTO v_leased_at_ms, v_is_packed FROM gone;
    IF NOT FOUND THEN
        PERFORM penstock.enter(p_queue, p_version);
        RETURN NULL;
    END IF;
    IF p_has_size THEN
        PERFORM penstock.give_room(p_queue, p_count);
    END IF;
    IF v_is_packed THEN
        IF p_operation IS NOT NULL THEN
            INSERT INTO penstock.operation (id, at_ms, answer) VALUES (p_operation, p_now, int4send(p_count));
        END IF;
        RETURN p_count;
    END IF;
    WITH gone AS (
        DELETE FROM penstock.leased WHERE lease = p_lease RETURNING *
    ), told AS (
        INSERT INTO penstock.history (
            period, at_offset, queue, key, home, home_key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms,
            deliveries, tier, ending, grp, error, body, attributes
        )
        SELECT
            p_period, v_front | nextval('penstock.told'), p_queue, key, home, home_key,
            coalesce(home_sent_at_ms, sent_at_ms), coalesce(first_leased_ms, v_leased_at_ms), v_leased_at_ms,
            p_now, deliveries + coalesce(home_deliveries, 0), served_tier, 1, grp, error,
            CASE WHEN p_history = 2 THEN body END, CASE WHEN p_history = 2 THEN attributes END
        FROM gone WHERE p_history > 0
    )
    SELECT count(*), array_agg(dedup_id) FILTER (WHERE dedup_id IS NOT NULL), array_agg(grp) FILTER (WHERE turn IS NOT NULL)
    INTO v_count, v_ids, v_tenants FROM gone;
    IF v_tenants IS NOT NULL THEN
        PERFORM penstock.let_go(
            p_queue, p_now, v_tenants, array_fill(v_leased_at_ms, ARRAY[cardinality(v_tenants)]),
            array_fill(p_now, ARRAY[cardinality(v_tenants)])
        );
    END IF;
    IF v_ids IS NOT NULL THEN
        DELETE FROM penstock.dedup WHERE queue = p_queue AND id = ANY (v_ids) AND until_ms IS NULL;
    END IF;
    IF p_operation IS NOT NULL THEN
        INSERT INTO penstock.operation (id, at_ms, answer) VALUES (p_operation, p_now, int4send(v_count));
    END IF;
    RETURN v_count;
END $$
