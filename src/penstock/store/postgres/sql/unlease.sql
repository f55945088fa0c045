-- Take messages out of leases whose rows the caller has locked, and let them wait, rest or be spent.
-- p_kind: 0 the lease lapsed, 1 released, 2 given back untouched, 3 rejected. NULL times are now.
CREATE OR REPLACE FUNCTION penstock.unlease(
    p_queue integer, p_now bigint, p_leases bigint[], p_rows integer[], p_kind smallint, p_visible_at_ms bigint[],
    p_error text, p_deliveries_max integer, p_aging_ms bigint[], p_is_fifo boolean
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_groups bytea[];
    -- From which delivery on what lapses goes behind the others of its tier.
    v_back_after integer;
BEGIN
    IF p_kind = 0 AND NOT p_is_fifo THEN
        SELECT nullif((settings::json ->> 'back_after_deliveries')::integer, 0) INTO v_back_after
        FROM penstock.queue WHERE number = p_queue;
    END IF;
    IF p_is_fifo THEN
        SELECT array_agg(DISTINCT l.grp) INTO v_groups
        FROM unnest(p_leases, p_rows) AS w (lease, row)
        JOIN penstock.leased AS l ON l.lease = w.lease AND l.row = w.row
        WHERE l.grp IS NOT NULL;
        PERFORM penstock.lock_lines(p_queue, v_groups);
        UPDATE penstock.line SET held = line.held - given.count
        FROM (
            SELECT l.grp, count(*) AS count
            FROM unnest(p_leases, p_rows) AS w (lease, row)
            JOIN penstock.leased AS l ON l.lease = w.lease AND l.row = w.row
            WHERE l.grp IS NOT NULL GROUP BY l.grp
        ) AS given
        WHERE line.queue = p_queue AND line.grp = given.grp;
    END IF;
    WITH wanted AS MATERIALIZED (
        SELECT w.*, e.token, e.leased_at_ms, e.until_ms
        FROM unnest(p_leases, p_rows, p_visible_at_ms) AS w (lease, row, visible_at_ms)
        JOIN penstock.lease AS e ON e.number = w.lease
    ), gone AS (
        DELETE FROM penstock.leased AS l USING wanted AS w
        WHERE l.lease = w.lease AND l.row = w.row
        RETURNING l.*, w.token, w.leased_at_ms, w.visible_at_ms,
            l.deliveries - CASE WHEN p_kind = 2 THEN 1 ELSE 0 END AS counted,
            CASE WHEN p_kind = 3 THEN l.deliveries ELSE coalesce(l.deliveries_max, 0) END AS own_max,
            CASE WHEN p_kind = 0 THEN coalesce(l.until_ms, w.until_ms) - 1 ELSE p_now END AS left_at_ms
    ), judged AS (
        SELECT g.*, p_deliveries_max > 0 AND g.counted >= coalesce(nullif(g.own_max, 0), p_deliveries_max) AS is_spent,
            p_kind > 0 OR coalesce(g.counted >= v_back_after, false) AS is_anew
        FROM gone AS g
    )
    INSERT INTO penstock.marked (
        queue, key, tier, state, since_ms, ordinal, turn, visible_at_ms, sent_at_ms, deliveries, deliveries_max,
        first_leased_ms, last_leased_ms, served_tier, grp, error, dedup_id, own_tier, escalated_until_ms,
        home, home_key, home_sent_at_ms, home_deliveries, lease, token, lease_row, body, attributes
    )
    SELECT
        p_queue, key,
        -- What has lapsed and keeps its place ages with the others.
        CASE WHEN is_spent OR is_anew
            THEN penstock.aged_tier(tier, coalesce(since_ms, sent_at_ms), left_at_ms, p_aging_ms) ELSE tier END,
        CASE WHEN is_spent THEN 4 WHEN visible_at_ms > p_now THEN 2 ELSE 1 END,
        CASE WHEN is_spent OR p_kind > 0 THEN p_now WHEN is_anew THEN left_at_ms + 1
            ELSE coalesce(since_ms, sent_at_ms) END,
        CASE WHEN p_kind = 0 AND is_anew THEN nextval('penstock.ordinal')
            ELSE coalesce(ordinal, nextval('penstock.ordinal')) END,
        CASE WHEN p_kind = 0 AND is_anew AND turn IS NOT NULL
            THEN penstock.next_turn(p_queue, tier, grp, p_now) ELSE turn END,
        CASE WHEN is_spent THEN nextval('penstock.ordinal') ELSE coalesce(visible_at_ms, 0) END, sent_at_ms, counted, own_max,
        coalesce(first_leased_ms, leased_at_ms), leased_at_ms, served_tier, grp,
        CASE WHEN p_error = '' OR p_kind = 2 THEN error ELSE p_error END, dedup_id, own_tier, escalated_until_ms,
        home, home_key, home_sent_at_ms, home_deliveries,
        CASE WHEN p_kind = 0 THEN lease END, CASE WHEN p_kind = 0 THEN token END, CASE WHEN p_kind = 0 THEN row END,
        body, attributes
    FROM judged
    ORDER BY lease, row;
    PERFORM penstock.shrink_leases(p_leases);
    IF p_is_fifo THEN
        PERFORM penstock.refresh_lines(p_queue, v_groups);
    END IF;
END $$
