-- Do what follows from the time alone, in this order: escalations end, leases lapse, resting messages wake, messages age.
-- Answers when something happens next (0: there is more to do now; another time that has passed: others hold what is due),
-- and whether something waits to be buried.
CREATE OR REPLACE FUNCTION penstock.advance(
    p_queue integer, p_now bigint, p_from bigint, p_deliveries_max integer, p_aging_ms bigint[], p_is_fifo boolean,
    p_most integer, p_until bigint, p_bounds bigint[], OUT next_ms bigint, OUT has_spent boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_lease record;
    v_due bigint[];
    v_packed bigint[];
    v_left bigint := p_most;
    v_leases bigint[];
    v_rows integer[];
    v_groups bytea[];
    v_found bytea[];
    v_count bigint;
    v_is_more boolean := false;
    v_lapsed bigint := 0;
    v_promoted bigint := 0;
BEGIN
    -- Called by itself, too: what moves while a purge or a deletion looks would be seen in neither place, and be left.
    PERFORM pg_sequence_last_value(to_regclass('penstock.lane_' || p_queue || '_0'));
    WITH due AS MATERIALIZED (
        SELECT ctid AS place, own_tier AS tier, grp, turn IS NOT NULL AND state = 1 AS has_turn, escalated_until_ms, ordinal
        FROM penstock.marked
        WHERE queue = p_queue AND escalated_until_ms > 0 AND escalated_until_ms <= p_now
        ORDER BY escalated_until_ms LIMIT p_most FOR UPDATE SKIP LOCKED
    ), ranked AS (
        SELECT *, row_number() OVER (PARTITION BY has_turn, tier, grp ORDER BY escalated_until_ms, ordinal) AS nth FROM due
    ), turned AS MATERIALIZED (
        SELECT place, nth - 1 + max(CASE WHEN nth = 1 AND has_turn THEN penstock.next_turn(p_queue, tier, grp, p_now) END)
            OVER (PARTITION BY has_turn, tier, grp) AS turn
        FROM ranked
    ), reverted AS (
        UPDATE penstock.marked AS m
        SET tier = m.own_tier, own_tier = NULL, escalated_until_ms = NULL, since_ms = m.escalated_until_ms,
            turn = coalesce(t.turn, m.turn)
        FROM turned AS t WHERE m.ctid = t.place RETURNING m.grp
    )
    SELECT array_agg(grp), count(*) INTO v_groups, v_count FROM reverted;
    v_is_more := v_count = p_most;

    -- Until they hold so many messages: a lease may have a thousand.
    FOR v_lease IN
        SELECT number, keys IS NOT NULL AS is_packed, held FROM penstock.lease
        WHERE queue = p_queue AND wakes_at_ms <= p_now AND wakes_at_ms > p_from
        ORDER BY wakes_at_ms LIMIT p_most FOR UPDATE SKIP LOCKED
    LOOP
        v_due := v_due || v_lease.number;
        v_packed := CASE WHEN v_lease.is_packed THEN v_packed || v_lease.number ELSE v_packed END;
        v_left := v_left - v_lease.held;
        EXIT WHEN v_left <= 0;
    END LOOP;
    v_is_more := v_is_more OR v_left <= 0;
    -- If there are none nothing is joined: the planner might begin with all leases that ever were.
    IF v_due IS NOT NULL THEN
        IF v_packed IS NOT NULL THEN
            PERFORM penstock.unpack(v_packed);
        END IF;
        SELECT array_agg(l.lease ORDER BY l.lease, l.row), array_agg(l.row ORDER BY l.lease, l.row)
        INTO v_leases, v_rows
        FROM unnest(v_due) AS due (number) CROSS JOIN LATERAL (
            SELECT l.lease, l.row FROM penstock.lease AS e JOIN penstock.leased AS l ON l.lease = e.number
            WHERE e.number = due.number AND coalesce(l.until_ms, e.until_ms) <= p_now OFFSET 0
        ) AS l;
        IF v_leases IS NOT NULL THEN
            v_lapsed := cardinality(v_leases);
            PERFORM penstock.unlease(
                p_queue, p_now, v_leases, v_rows, 0::smallint, NULL, '', p_deliveries_max, p_aging_ms, p_is_fifo
            );
        END IF;
    END IF;

    WITH due AS MATERIALIZED (
        SELECT ctid AS place, tier, grp, turn IS NOT NULL AS has_turn, visible_at_ms, ordinal FROM penstock.marked
        WHERE queue = p_queue AND state = 2 AND visible_at_ms <= p_now
        ORDER BY visible_at_ms LIMIT p_most FOR UPDATE SKIP LOCKED
    ), ranked AS (
        SELECT *, row_number() OVER (PARTITION BY tier, grp ORDER BY visible_at_ms, ordinal) AS nth FROM due
    ), turned AS MATERIALIZED (
        SELECT place, nth - 1 + max(CASE WHEN nth = 1 AND has_turn THEN penstock.next_turn(p_queue, tier, grp, p_now) END)
            OVER (PARTITION BY tier, grp) AS turn
        FROM ranked
    ), woken AS (
        -- It woke before its escalation ended, where both are due at once and that was done first.
        UPDATE penstock.marked AS m SET state = 1, since_ms = greatest(m.visible_at_ms, m.since_ms), turn = t.turn
        FROM turned AS t WHERE m.ctid = t.place RETURNING m.grp
    )
    SELECT array_agg(grp), count(*) INTO v_found, v_count FROM woken;
    v_groups := v_groups || v_found;
    v_is_more := v_is_more OR v_count = p_most;

    FOR v_tier IN REVERSE 4 .. 1 LOOP
        CONTINUE WHEN p_aging_ms[v_tier + 1] = 0;
        v_found := penstock.age(
            p_queue, p_now, v_tier::smallint, p_aging_ms[v_tier + 1], p_most, p_bounds[v_tier + 1]
        );
        v_promoted := v_promoted + coalesce(cardinality(v_found), 0);
        v_groups := v_groups || v_found;
        v_is_more := v_is_more OR cardinality(v_found) >= p_most;
    END LOOP;
    IF v_lapsed > 0 OR v_promoted > 0 THEN
        INSERT INTO penstock.tally (queue, lapsed, promoted) VALUES (p_queue, v_lapsed, v_promoted);
    END IF;
    IF p_is_fifo THEN
        PERFORM penstock.refresh_lines(p_queue, v_groups);
    END IF;
    next_ms := CASE WHEN v_is_more THEN 0 ELSE penstock.next_ms(
        p_queue, p_from, p_until, p_bounds, p_aging_ms
    ) END;
    has_spent := EXISTS (SELECT 1 FROM penstock.marked WHERE queue = p_queue AND state = 4);
END $$
