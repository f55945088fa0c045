-- Take messages out of leases whose rows the caller has locked, and let them wait, rest or be spent.
-- p_kind: 0 the lease lapsed, 1 released, 2 given back untouched, 3 rejected. NULL times are now.
CREATE OR REPLACE FUNCTION penstock.unlease(
    p_queue integer, p_now bigint, p_leases bigint[], p_rows integer[], p_kind smallint, p_visible_at_ms bigint[],
    p_error text, p_deliveries_max integer, p_aging_ms bigint[], p_is_fifo boolean
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_groups bytea[];
    v_tenants bytea[];
    v_leased_at_ms bigint[];
    v_left_at_ms bigint[];
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
        -- The front rises only when nothing is leased; what comes back is behind it, and is found even if it is not.
        UPDATE penstock.line SET held = line.held - given.count, front = least(line.front, given.ordinal)
        FROM (
            SELECT l.grp, count(*) AS count, min(l.ordinal) AS ordinal
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
        SELECT g.*, t.tier AS new_tier, t.since_ms AS new_since_ms, t.is_escalated,
            p_deliveries_max > 0 AND g.counted >= coalesce(nullif(g.own_max, 0), p_deliveries_max) AS is_spent,
            p_kind > 0 OR coalesce(g.counted >= v_back_after, false) AS is_anew,
            row_number() OVER (PARTITION BY t.tier, g.grp ORDER BY g.tier = t.tier, g.lease, g.row) AS nth
        FROM gone AS g CROSS JOIN LATERAL penstock.held_tier(
            g.tier, coalesce(g.since_ms, g.sent_at_ms), g.own_tier, g.escalated_until_ms, g.left_at_ms, p_aging_ms
        ) AS t
    ), turned AS (
        -- Beside those of other groups, one turn after the other: what many groups wait behind must not come first whole.
        SELECT j.*, nth - 1 + max(
            CASE WHEN nth > 1 OR turn IS NULL THEN NULL
                WHEN p_kind = 1 OR p_kind = 0 AND is_anew OR new_tier <> tier
                    THEN penstock.next_turn(p_queue, new_tier, grp, p_now)
                ELSE penstock.first_turn(p_queue, new_tier, NULL) END
        ) OVER (PARTITION BY new_tier, grp) AS next_turn
        FROM judged AS j
    ), put AS (
        INSERT INTO penstock.marked (
            queue, key, tier, state, since_ms, ordinal, turn, visible_at_ms, sent_at_ms, deliveries, deliveries_max,
            first_leased_ms, last_leased_ms, served_tier, grp, error, dedup_id, own_tier, escalated_until_ms,
            home, home_key, home_sent_at_ms, home_deliveries, lease, token, lease_row, body, attributes
        )
        SELECT
            p_queue, key, new_tier,
            CASE WHEN is_spent THEN 4 WHEN visible_at_ms > p_now THEN 2 ELSE 1 END,
            CASE WHEN is_spent OR p_kind > 0 THEN p_now WHEN is_anew THEN left_at_ms + 1
                ELSE new_since_ms END,
            CASE WHEN p_kind = 0 AND is_anew THEN nextval('penstock.ordinal')
                ELSE coalesce(ordinal, nextval('penstock.ordinal')) END,
            -- A turn is one of its tier.
            CASE WHEN new_tier = tier THEN greatest(turn, next_turn) ELSE next_turn END,
            CASE WHEN is_spent THEN nextval('penstock.ordinal') ELSE coalesce(visible_at_ms, 0) END, sent_at_ms, counted,
            own_max, coalesce(first_leased_ms, leased_at_ms), leased_at_ms, served_tier, grp,
            CASE WHEN p_error = '' OR p_kind = 2 THEN error ELSE p_error END, dedup_id,
            CASE WHEN is_escalated THEN own_tier END, CASE WHEN is_escalated THEN escalated_until_ms END,
            home, home_key, home_sent_at_ms, home_deliveries,
            CASE WHEN p_kind = 0 THEN lease END, CASE WHEN p_kind = 0 THEN token END, CASE WHEN p_kind = 0 THEN row END,
            body, attributes
        FROM turned
        ORDER BY lease, row
    )
    SELECT array_agg(grp), array_agg(leased_at_ms), array_agg(CASE WHEN p_kind = 0 THEN left_at_ms + 1 ELSE p_now END)
    INTO v_tenants, v_leased_at_ms, v_left_at_ms FROM gone WHERE turn IS NOT NULL;
    PERFORM penstock.let_go(p_queue, p_now, v_tenants, v_leased_at_ms, v_left_at_ms) WHERE v_tenants IS NOT NULL;
    PERFORM penstock.shrink_leases(p_leases);
    IF p_is_fifo THEN
        PERFORM penstock.refresh_lines(p_queue, v_groups);
    END IF;
END $$
