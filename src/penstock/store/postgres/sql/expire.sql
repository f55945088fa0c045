-- Settle messages past their retention, except leased ones; answers with how many.
CREATE OR REPLACE FUNCTION penstock.expire(
    p_queue integer, p_version bigint, p_now bigint, p_sent_until_ms bigint, p_most integer, p_is_fifo boolean,
    p_history smallint, p_period integer, p_bounds bigint[]
) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_front bigint := pg_current_xact_id()::text::bigint << 24;
    v_keys bigint[];
    v_count integer;
    v_total integer := 0;
    v_last bigint;
BEGIN
    PERFORM penstock.enter(p_queue, p_version);
    FOR v_tier IN 0 .. 4 LOOP
        -- Numbers are in the order of sending, or nearly: the old ones are at the front. Others are not locked: a lease
        -- that passed over them would look for them no more.
        SELECT max(number) INTO v_last FROM (
            SELECT number, sent_at_ms FROM penstock.ready
            WHERE queue = p_queue AND tier = v_tier AND number >= p_bounds[v_tier + 1] ORDER BY number LIMIT p_most
        ) AS front WHERE sent_at_ms <= p_sent_until_ms;
        CONTINUE WHEN v_last IS NULL;
        WITH due AS MATERIALIZED (
            SELECT ctid AS place FROM penstock.ready
            WHERE queue = p_queue AND tier = v_tier AND number BETWEEN p_bounds[v_tier + 1] AND v_last
                AND sent_at_ms <= p_sent_until_ms
            ORDER BY number LIMIT p_most FOR UPDATE SKIP LOCKED
        ), gone AS (
            DELETE FROM penstock.ready AS r USING due WHERE r.ctid = due.place RETURNING r.*
        ), told AS (
            INSERT INTO penstock.history (
            period, at_offset, queue, key, home, home_key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms,
            deliveries, tier, ending, grp, error, body, attributes
        )
            SELECT
                p_period, v_front | nextval('penstock.told'), p_queue, number << 3 | tier, NULL, NULL, sent_at_ms, 0, 0,
                p_now, 0, tier, 3, NULL, NULL,
                CASE WHEN p_history = 2 THEN body END, CASE WHEN p_history = 2 THEN attributes END
            FROM gone WHERE p_history > 0
        )
        SELECT count(*) INTO v_count FROM gone;
        v_total := v_total + v_count;
    END LOOP;
    IF v_total > 0 THEN
        PERFORM penstock.give_room(p_queue, v_total);
    END IF;
    IF p_is_fifo THEN
        PERFORM penstock.lock_lines(p_queue, ARRAY(
            SELECT grp FROM penstock.marked WHERE queue = p_queue AND sent_at_ms <= p_sent_until_ms
            ORDER BY sent_at_ms LIMIT p_most
        ));
    END IF;
    SELECT array_agg(key) INTO v_keys FROM (
        SELECT key FROM penstock.marked WHERE queue = p_queue AND sent_at_ms <= p_sent_until_ms
        ORDER BY sent_at_ms LIMIT p_most FOR UPDATE SKIP LOCKED
    ) AS old;
    IF v_keys IS NOT NULL THEN
        SELECT count(*) INTO v_count
        FROM penstock.settle_marked(p_queue, p_now, v_keys, 3::smallint, p_is_fifo, p_history, p_period);
        v_total := v_total + v_count;
    END IF;
    RETURN v_total;
END $$
