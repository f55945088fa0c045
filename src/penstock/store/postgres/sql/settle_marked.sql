-- Settle messages of `marked` that the caller has locked: one row of history for each. Their lives go on elsewhere,
-- or end.
CREATE OR REPLACE FUNCTION penstock.settle_marked(
    p_queue integer, p_now bigint, p_keys bigint[], p_ending smallint, p_is_fifo boolean, p_history smallint,
    p_period integer
) RETURNS SETOF penstock.marked
LANGUAGE plpgsql AS $$
DECLARE
    v_front bigint := pg_current_xact_id()::text::bigint << 24;
    v_rows penstock.marked[];
BEGIN
    WITH gone AS (
        -- OFFSET keeps it a look for each key: see `send`.
        DELETE FROM penstock.marked WHERE ctid = ANY (ARRAY(
            SELECT m.place FROM unnest(p_keys) AS w (key) CROSS JOIN LATERAL (
                SELECT ctid AS place FROM penstock.marked WHERE queue = p_queue AND key = w.key OFFSET 0
            ) AS m
        )) RETURNING *
    ), freed AS (
        DELETE FROM penstock.dedup WHERE ctid = ANY (ARRAY(
            SELECT known.place FROM gone CROSS JOIN LATERAL (
                SELECT ctid AS place FROM penstock.dedup
                WHERE queue = p_queue AND id = gone.dedup_id AND until_ms IS NULL OFFSET 0
            ) AS known
            WHERE gone.dedup_id IS NOT NULL
        ))
    ), told AS (
        INSERT INTO penstock.history (
            period, at_offset, queue, key, home, home_key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms,
            deliveries, tier, ending, grp, error, body, attributes
        )
        SELECT
            p_period, v_front | nextval('penstock.told'), p_queue, key, home, home_key,
            coalesce(home_sent_at_ms, sent_at_ms), first_leased_ms, last_leased_ms, p_now,
            deliveries + coalesce(home_deliveries, 0), CASE WHEN deliveries > 0 THEN served_tier ELSE tier END,
            p_ending, grp, error, CASE WHEN p_history = 2 THEN body END, CASE WHEN p_history = 2 THEN attributes END
        FROM gone WHERE p_history > 0
    )
    SELECT array_agg(ROW(gone.*)::penstock.marked) INTO v_rows FROM gone;
    PERFORM penstock.give_room(p_queue, coalesce(cardinality(v_rows), 0));
    IF p_is_fifo THEN
        PERFORM penstock.refresh_lines(p_queue, (SELECT array_agg(grp) FROM unnest(v_rows)));
    END IF;
    PERFORM penstock.forget_tenants(p_queue, array_agg(grp)) FROM unnest(v_rows) WHERE turn IS NOT NULL HAVING count(*) > 0;
    RETURN QUERY SELECT * FROM unnest(v_rows);
END $$
