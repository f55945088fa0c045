-- Messages whose lease lapsed, and that wait since, are in it again until p_until. A lease of which nothing was left is made
-- again under its number. The caller has locked the leases that are there.
CREATE OR REPLACE FUNCTION penstock.hold_again(
    p_queue integer, p_until bigint, p_lease_ms bigint, p_leases bigint[], p_tokens bigint[], p_rows integer[],
    p_is_fifo boolean
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_groups bytea[];
    v_tenants bytea[];
BEGIN
    IF p_is_fifo THEN
        SELECT array_agg(DISTINCT m.grp) INTO v_groups
        FROM unnest(p_leases, p_tokens, p_rows) AS w (lease, token, row)
        JOIN penstock.marked AS m ON m.lease = w.lease AND m.lease_row = w.row AND m.token = w.token
        WHERE m.queue = p_queue AND m.grp IS NOT NULL;
        PERFORM penstock.lock_lines(p_queue, v_groups);
    END IF;
    WITH back AS (
        DELETE FROM penstock.marked AS m USING unnest(p_leases, p_tokens, p_rows) AS w (lease, token, row)
        WHERE m.lease = w.lease AND m.lease_row = w.row AND m.token = w.token AND m.queue = p_queue AND m.state = 1
        RETURNING m.*
    ), reopened AS (
        INSERT INTO penstock.lease AS e (
            number, queue, token, held, leased_at_ms, lease_ms, until_ms, wakes_at_ms
        )
        SELECT lease, p_queue, min(token), count(*), max(last_leased_ms), p_lease_ms, p_until, p_until
        FROM back GROUP BY lease
        ON CONFLICT (number) DO UPDATE SET held = e.held + excluded.held
    ), closed AS (
        UPDATE penstock.line SET held = line.held + given.count
        FROM (SELECT grp, count(*) AS count FROM back WHERE p_is_fifo AND grp IS NOT NULL GROUP BY grp) AS given
        WHERE line.queue = p_queue AND line.grp = given.grp
    ), held AS (
        INSERT INTO penstock.leased (
            lease, row, queue, key, tier, served_tier, sent_at_ms, deliveries, until_ms, lease_ms, since_ms, ordinal, turn,
            deliveries_max, first_leased_ms, grp, error, dedup_id, own_tier, escalated_until_ms, home, home_key,
            home_sent_at_ms, home_deliveries, body, attributes
        )
        SELECT
            lease, lease_row, queue, key, tier, served_tier, sent_at_ms, deliveries, p_until, p_lease_ms, since_ms, ordinal,
            turn, deliveries_max, first_leased_ms, grp, error, dedup_id, own_tier, escalated_until_ms, home, home_key,
            home_sent_at_ms, home_deliveries, body, attributes
        FROM back
    )
    SELECT array_agg(grp) FILTER (WHERE turn IS NOT NULL) INTO v_tenants FROM back;
    PERFORM penstock.count_held(p_queue, p_until - p_lease_ms, v_tenants, 1) WHERE v_tenants IS NOT NULL;
    PERFORM penstock.refresh_lines(p_queue, v_groups) WHERE v_groups IS NOT NULL;
END $$
