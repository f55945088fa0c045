-- Settle messages of any leases. Answers with the receipts that were good, counted from 1, 4 bytes each.
CREATE OR REPLACE FUNCTION penstock.ack(
    p_queue integer, p_version bigint, p_now bigint, p_leases bigint[], p_tokens bigint[], p_rows integer[],
    p_outlives boolean, p_is_fifo boolean, p_history smallint, p_period integer,
    p_has_size boolean, p_operation bigint
) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    v_front bigint := pg_current_xact_id()::text::bigint << 24;
    -- With p_outlives a receipt is good although its time is over, as long as the message is not leased again.
    v_now bigint := CASE WHEN p_outlives THEN 0 ELSE p_now END;
    v_good record;
    v_ids bytea[];
    v_groups bytea[];
    v_late integer[];
    v_tenants bytea[];
    v_leased_at_ms bigint[];
    v_left_at_ms bigint[];
    v_answer bytea;
BEGIN
    PERFORM penstock.enter(p_queue, p_version);
    PERFORM penstock.lock_leases(p_queue, p_leases);
    SELECT * INTO v_good FROM penstock.held(p_queue, v_now, p_leases, p_tokens, p_rows);
    IF p_is_fifo AND v_good.leases IS NOT NULL THEN
        SELECT array_agg(DISTINCT l.grp) INTO v_groups
        FROM unnest(v_good.leases, v_good.rows) AS w (lease, row)
        JOIN penstock.leased AS l ON l.lease = w.lease AND l.row = w.row WHERE l.grp IS NOT NULL;
        PERFORM penstock.lock_lines(p_queue, v_groups);
    END IF;
    WITH gone AS (
        DELETE FROM penstock.leased AS l
        USING unnest(v_good.leases, v_good.rows) AS w (lease, row), penstock.lease AS e
        WHERE l.lease = w.lease AND l.row = w.row AND e.number = w.lease
        RETURNING l.*, e.leased_at_ms, least(p_now, coalesce(l.until_ms, e.until_ms)) AS left_at_ms
    ), told AS (
        INSERT INTO penstock.history (
            period, at_offset, queue, key, home, home_key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms,
            deliveries, tier, ending, grp, error, body, attributes
        )
        SELECT
            p_period, v_front | nextval('penstock.told'), p_queue, key, home, home_key,
            coalesce(home_sent_at_ms, sent_at_ms), coalesce(first_leased_ms, leased_at_ms), leased_at_ms,
            p_now, deliveries + coalesce(home_deliveries, 0), served_tier, 1, grp, error,
            CASE WHEN p_history = 2 THEN body END, CASE WHEN p_history = 2 THEN attributes END
        FROM gone WHERE p_history > 0
    ), opened AS (
        UPDATE penstock.line SET held = line.held - given.count
        FROM (SELECT grp, count(*) AS count FROM gone WHERE p_is_fifo AND grp IS NOT NULL GROUP BY grp) AS given
        WHERE line.queue = p_queue AND line.grp = given.grp
    )
    SELECT array_agg(dedup_id) FILTER (WHERE dedup_id IS NOT NULL), array_agg(grp) FILTER (WHERE turn IS NOT NULL),
        array_agg(leased_at_ms) FILTER (WHERE turn IS NOT NULL), array_agg(left_at_ms) FILTER (WHERE turn IS NOT NULL)
    INTO v_ids, v_tenants, v_leased_at_ms, v_left_at_ms FROM gone;
    PERFORM penstock.let_go(p_queue, p_now, v_tenants, v_leased_at_ms, v_left_at_ms) WHERE v_tenants IS NOT NULL;
    IF v_good.leases IS NOT NULL THEN
        PERFORM penstock.shrink_leases(v_good.leases);
    END IF;
    IF p_outlives THEN
        WITH gone AS (
            DELETE FROM penstock.marked AS m
            USING unnest(p_leases, p_tokens, p_rows) WITH ORDINALITY AS w (lease, token, row, n)
            WHERE m.lease = w.lease AND m.lease_row = w.row AND m.token = w.token AND m.queue = p_queue
            RETURNING m.*, w.n
        ), told AS (
        INSERT INTO penstock.history (
            period, at_offset, queue, key, home, home_key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms,
            deliveries, tier, ending, grp, error, body, attributes
        )
            SELECT
                p_period, v_front | nextval('penstock.told'), p_queue, key, home, home_key,
                coalesce(home_sent_at_ms, sent_at_ms), first_leased_ms, last_leased_ms,
                p_now, deliveries + coalesce(home_deliveries, 0), served_tier, 1, grp, error,
                CASE WHEN p_history = 2 THEN body END, CASE WHEN p_history = 2 THEN attributes END
            FROM gone WHERE p_history > 0
        )
        SELECT array_agg(n), v_ids || array_agg(dedup_id) FILTER (WHERE dedup_id IS NOT NULL),
            array_agg(grp) FILTER (WHERE turn IS NOT NULL)
        INTO v_late, v_ids, v_tenants FROM gone;
        PERFORM penstock.forget_tenants(p_queue, v_tenants) WHERE v_tenants IS NOT NULL;
    END IF;
    IF v_ids IS NOT NULL THEN
        DELETE FROM penstock.dedup WHERE queue = p_queue AND id = ANY (v_ids) AND until_ms IS NULL;
    END IF;
    IF p_has_size THEN
        PERFORM penstock.give_room(p_queue, coalesce(cardinality(v_good.leases), 0) + coalesce(cardinality(v_late), 0));
    END IF;
    PERFORM penstock.refresh_lines(p_queue, v_groups) WHERE v_groups IS NOT NULL;
    SELECT coalesce(string_agg(int4send(n::integer), ''), '') INTO v_answer
    FROM unnest(v_good.nths || v_late::bigint[]) AS n;
    IF p_operation IS NOT NULL THEN
        INSERT INTO penstock.operation (id, at_ms, answer) VALUES (p_operation, p_now, v_answer);
    END IF;
    RETURN v_answer;
END $$
