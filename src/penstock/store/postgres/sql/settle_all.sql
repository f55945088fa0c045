-- Settle everything in a queue, wherever it is; answers with how many. The caller has the queue for itself.
CREATE OR REPLACE FUNCTION penstock.settle_all(
    p_queue integer, p_now bigint, p_ending smallint, p_history smallint, p_period integer
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_front bigint := pg_current_xact_id()::text::bigint << 24;
    v_count bigint;
BEGIN
    PERFORM penstock.unpack(ARRAY(SELECT number FROM penstock.lease WHERE queue = p_queue AND keys IS NOT NULL));
    WITH plain AS (
        DELETE FROM penstock.ready WHERE queue = p_queue RETURNING *
    ), marked AS (
        DELETE FROM penstock.marked WHERE queue = p_queue RETURNING *
    ), leases AS (
        DELETE FROM penstock.lease WHERE queue = p_queue RETURNING *
    ), leased AS (
        DELETE FROM penstock.leased AS l USING penstock.lease AS e
        WHERE e.queue = p_queue AND l.lease = e.number RETURNING l.*, e.leased_at_ms
    ), gone AS (
        SELECT number << 3 | tier AS key, NULL::integer AS home, NULL::bigint AS home_key, sent_at_ms,
            0::bigint AS first_leased_ms, 0::bigint AS last_leased_ms, 0 AS deliveries, tier,
            NULL::bytea AS grp, NULL::text AS error, body, attributes
        FROM plain
        UNION ALL
        SELECT key, home, home_key, coalesce(home_sent_at_ms, sent_at_ms), first_leased_ms, last_leased_ms,
            deliveries + coalesce(home_deliveries, 0), CASE WHEN deliveries > 0 THEN served_tier ELSE tier END,
            grp, error, body, attributes
        FROM marked
        UNION ALL
        SELECT key, home, home_key, coalesce(home_sent_at_ms, sent_at_ms), coalesce(first_leased_ms, leased_at_ms),
            leased_at_ms, deliveries + coalesce(home_deliveries, 0), served_tier, grp, error, body, attributes
        FROM leased
    ), told AS (
        INSERT INTO penstock.history (
            period, at_offset, queue, key, home, home_key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms,
            deliveries, tier, ending, grp, error, body, attributes
        )
        SELECT
            p_period, v_front | nextval('penstock.told'), p_queue, key, home, home_key, sent_at_ms, first_leased_ms,
            last_leased_ms, p_now, deliveries, tier, p_ending, grp, error,
            CASE WHEN p_history = 2 THEN body END, CASE WHEN p_history = 2 THEN attributes END
        FROM gone WHERE p_history > 0
    )
    SELECT count(*) INTO v_count FROM gone;
    PERFORM penstock.give_room(p_queue, v_count);
    DELETE FROM penstock.line WHERE queue = p_queue;
    DELETE FROM penstock.tenant WHERE queue = p_queue;
    DELETE FROM penstock.tenant_held WHERE queue = p_queue;
    DELETE FROM penstock.dedup WHERE queue = p_queue AND until_ms IS NULL;
    RETURN v_count;
END $$
