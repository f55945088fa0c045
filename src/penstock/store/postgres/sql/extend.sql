-- Hold messages for so long from now on; with p_outlives also those whose lease has lapsed, as long as they were not leased
-- again. Answers as `ack` does; to do it twice is to do it once.
CREATE OR REPLACE FUNCTION penstock.extend(
    p_queue integer, p_version bigint, p_now bigint, p_leases bigint[], p_tokens bigint[], p_rows integer[],
    p_lease_ms bigint, p_outlives boolean, p_is_fifo boolean
) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    v_good record;
    v_until bigint := p_now + p_lease_ms;
BEGIN
    PERFORM penstock.enter(p_queue, p_version);
    -- A packed lease that is extended as a whole stays packed. No receipt is named twice, so as many as it has are all.
    IF p_leases[1] = ALL (p_leases) AND p_tokens[1] = ALL (p_tokens) THEN
        UPDATE penstock.lease SET until_ms = v_until, lease_ms = p_lease_ms, wakes_at_ms = v_until, is_rearmed = false
        -- Found by its number, and not by its queue: see `ack_lease`.
        WHERE number = p_leases[1] AND queue + 0 = p_queue AND token = p_tokens[1] AND until_ms > p_now
            AND keys IS NOT NULL AND held = cardinality(p_rows) AND held > ALL (p_rows);
        IF FOUND THEN
            RETURN (SELECT string_agg(int4send(n), '') FROM generate_series(1, cardinality(p_rows)) AS n);
        END IF;
    END IF;
    PERFORM penstock.lock_leases(p_queue, p_leases);
    IF p_outlives THEN
        PERFORM penstock.hold_again(p_queue, v_until, p_lease_ms, p_leases, p_tokens, p_rows, p_is_fifo);
    END IF;
    SELECT * INTO v_good FROM penstock.held(p_queue, p_now, p_leases, p_tokens, p_rows);
    -- A lease that is extended as a whole has one end again.
    WITH given AS MATERIALIZED (
        SELECT lease, count(*) AS count FROM unnest(v_good.leases) AS lease GROUP BY lease
    ), whole AS (
        UPDATE penstock.lease AS e SET until_ms = v_until, lease_ms = p_lease_ms, wakes_at_ms = v_until,
            has_own_ends = false, is_rearmed = false
        FROM given AS g WHERE e.number = g.lease AND e.held = g.count RETURNING e.number
    ), cleared AS (
        UPDATE penstock.leased AS l SET until_ms = NULL, lease_ms = NULL
        FROM whole AS w WHERE l.lease = w.number AND l.until_ms IS NOT NULL
    ), partial AS (
        UPDATE penstock.leased AS l SET until_ms = v_until, lease_ms = p_lease_ms
        FROM unnest(v_good.leases, v_good.rows) AS w (lease, row), penstock.lease AS e, given AS g
        WHERE l.lease = w.lease AND l.row = w.row AND e.number = w.lease AND g.lease = w.lease AND e.held <> g.count
    )
    UPDATE penstock.lease AS e SET has_own_ends = true, is_rearmed = false, wakes_at_ms = least(e.wakes_at_ms, v_until)
    FROM given AS g WHERE e.number = g.lease AND e.held <> g.count;
    -- The first end of what is left; it counts only where not all have the same one.
    UPDATE penstock.lease AS e SET wakes_at_ms = (
        SELECT min(coalesce(l.until_ms, e.until_ms)) FROM penstock.leased AS l WHERE l.lease = e.number
    )
    WHERE e.number = ANY (v_good.leases) AND e.has_own_ends;
    RETURN (SELECT coalesce(string_agg(int4send(n::integer), ''), '') FROM unnest(v_good.nths) AS n);
END $$
