-- Settle the first so many messages of one lease: the way of a healthy ack. Answers with how many it settled,
-- or with NULL if it is not so simple and nothing was done.
CREATE OR REPLACE FUNCTION penstock.ack_lease(
    p_queue integer, p_version bigint, p_now bigint, p_lease bigint, p_token bigint, p_count integer,
    p_history smallint, p_period integer, p_operation bigint
) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_leased_at_ms bigint;
    v_front bigint := pg_current_xact_id()::text::bigint << 24;
    v_count integer;
    v_ids bytea[];
BEGIN
    PERFORM penstock.enter(p_queue, p_version);
    DELETE FROM penstock.lease
    WHERE number = p_lease AND queue = p_queue AND token = p_token AND until_ms > p_now AND held = p_count
        AND NOT has_own_ends
    RETURNING leased_at_ms INTO v_leased_at_ms;
    IF NOT FOUND THEN
        RETURN NULL;
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
    SELECT count(*), array_agg(dedup_id) FILTER (WHERE dedup_id IS NOT NULL) INTO v_count, v_ids FROM gone;
    IF v_ids IS NOT NULL THEN
        DELETE FROM penstock.dedup WHERE queue = p_queue AND id = ANY (v_ids) AND until_ms IS NULL;
    END IF;
    IF p_operation IS NOT NULL THEN
        INSERT INTO penstock.operation (id, at_ms, answer) VALUES (p_operation, p_now, int4send(v_count));
    END IF;
    RETURN v_count;
END $$
