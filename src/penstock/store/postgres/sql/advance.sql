-- Do what follows from the time alone, in this order: escalations end, leases lapse, resting messages wake, messages age.
-- Answers when something happens next, and whether something waits to be buried.
CREATE OR REPLACE FUNCTION penstock.advance(
    p_queue integer, p_now bigint, p_from bigint, p_deliveries_max integer, p_aging_ms bigint[], p_is_fifo boolean,
    p_most integer, OUT next_ms bigint, OUT has_spent boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_leases bigint[];
    v_rows integer[];
    v_groups bytea[];
    v_found bytea[];
    v_count bigint;
    v_is_more boolean := false;
BEGIN
    WITH due AS (
        SELECT ctid AS place FROM penstock.marked
        WHERE queue = p_queue AND escalated_until_ms > 0 AND escalated_until_ms <= p_now
        ORDER BY escalated_until_ms LIMIT p_most FOR UPDATE SKIP LOCKED
    ), reverted AS (
        UPDATE penstock.marked AS m
        SET tier = m.own_tier, own_tier = NULL, escalated_until_ms = NULL, since_ms = m.escalated_until_ms,
            turn = CASE WHEN m.turn IS NOT NULL AND m.state = 1
                THEN penstock.next_turn(p_queue, m.own_tier, m.grp, p_now) ELSE m.turn END
        FROM due WHERE m.ctid = due.place RETURNING m.grp
    )
    SELECT array_agg(grp), count(*) INTO v_groups, v_count FROM reverted;
    v_is_more := v_count = p_most;

    WITH due AS MATERIALIZED (
        SELECT number, until_ms FROM penstock.lease
        WHERE queue = p_queue AND wakes_at_ms <= p_now AND wakes_at_ms > p_from
        ORDER BY wakes_at_ms LIMIT p_most FOR UPDATE SKIP LOCKED
    )
    SELECT array_agg(l.lease ORDER BY l.lease, l.row), array_agg(l.row ORDER BY l.lease, l.row), count(DISTINCT l.lease)
    INTO v_leases, v_rows, v_count
    FROM due JOIN penstock.leased AS l ON l.lease = due.number
    WHERE coalesce(l.until_ms, due.until_ms) <= p_now;
    v_is_more := v_is_more OR v_count = p_most;
    IF v_leases IS NOT NULL THEN
        PERFORM penstock.unlease(
            p_queue, p_now, v_leases, v_rows, 0::smallint, NULL, '', p_deliveries_max, p_aging_ms, p_is_fifo
        );
    END IF;

    WITH due AS (
        SELECT ctid AS place FROM penstock.marked
        WHERE queue = p_queue AND state = 2 AND visible_at_ms <= p_now
        ORDER BY visible_at_ms LIMIT p_most FOR UPDATE SKIP LOCKED
    ), woken AS (
        UPDATE penstock.marked AS m
        SET state = 1, since_ms = m.visible_at_ms,
            turn = CASE WHEN m.turn IS NOT NULL THEN penstock.next_turn(p_queue, m.tier, m.grp, p_now) END
        FROM due WHERE m.ctid = due.place RETURNING m.grp
    )
    SELECT array_agg(grp), count(*) INTO v_found, v_count FROM woken;
    v_groups := v_groups || v_found;
    v_is_more := v_is_more OR v_count = p_most;

    FOR v_tier IN REVERSE 4 .. 1 LOOP
        CONTINUE WHEN p_aging_ms[v_tier + 1] = 0;
        v_found := penstock.age(p_queue, p_now, v_tier::smallint, p_aging_ms[v_tier + 1], p_most);
        v_groups := v_groups || v_found;
        v_is_more := v_is_more OR cardinality(v_found) >= p_most;
    END LOOP;
    IF p_is_fifo THEN
        PERFORM penstock.refresh_lines(p_queue, v_groups);
    END IF;
    next_ms := CASE WHEN v_is_more THEN p_now ELSE penstock.next_ms(p_queue, p_from, p_aging_ms) END;
    has_spent := EXISTS (SELECT 1 FROM penstock.marked WHERE queue = p_queue AND state = 4);
END $$
