-- Settle messages in leases of a queue that is purged: of the next leases as many as hold p_most, and one more. Answers with how
-- many messages, and with the instant to go on from, NULL if no lease was left to look at.
CREATE OR REPLACE FUNCTION penstock.purge_leases(
    p_purge penstock.purge, p_now bigint, p_most integer, p_period integer, OUT count bigint, OUT next bigint
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_front bigint := pg_current_xact_id()::text::bigint << 24;
    c_leases CONSTANT integer := 200;
    v_leases bigint[];
    v_are_more boolean;
    v_ids bytea[];
    v_groups bytea[];
    v_tenants bytea[];
    v_leased_at_ms bigint[];
    v_left_at_ms bigint[];
BEGIN
    count := 0;
    -- With all that end at the same instant, so that the next look begins behind them.
    SELECT array_agg(number), max(wakes_at_ms) + 1 INTO v_leases, next FROM (
        SELECT number, wakes_at_ms FROM penstock.lease WHERE queue = p_purge.queue AND wakes_at_ms >= p_purge.froms[7]
        ORDER BY wakes_at_ms FETCH FIRST c_leases ROWS WITH TIES
    ) AS page;
    SELECT array_agg(number) FILTER (WHERE total - held < p_most), bool_or(total - held >= p_most)
    INTO v_leases, v_are_more
    FROM (
        SELECT number, held, sum(held) OVER (ROWS UNBOUNDED PRECEDING) AS total FROM (
            SELECT number, held FROM penstock.lease
            WHERE number = ANY (v_leases) AND queue + 0 = p_purge.queue ORDER BY number FOR UPDATE SKIP LOCKED
        ) AS locked
        WHERE penstock.is_purged(p_purge, number)
    ) AS summed;
    IF v_leases IS NULL THEN
        RETURN;
    ELSIF v_are_more THEN
        next := p_purge.froms[7];
    END IF;
    PERFORM penstock.unpack(v_leases);
    IF p_purge.is_fifo THEN
        SELECT array_agg(DISTINCT grp) INTO v_groups FROM penstock.leased
        WHERE lease = ANY (v_leases) AND key >> 3 <= p_purge.lasts[(key & 7) + 1] AND grp IS NOT NULL;
        PERFORM penstock.lock_lines(p_purge.queue, v_groups);
    END IF;
    WITH gone AS (
        DELETE FROM penstock.leased AS l USING unnest(v_leases) AS w (number), penstock.lease AS e
        WHERE l.lease = w.number AND e.number = w.number AND l.key >> 3 <= p_purge.lasts[(l.key & 7) + 1]
        RETURNING l.*, e.leased_at_ms, least(p_now, coalesce(l.until_ms, e.until_ms)) AS left_at_ms
    ), told AS (
        INSERT INTO penstock.history (
            period, at_offset, queue, key, home, home_key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms,
            deliveries, tier, ending, grp, error, body, attributes
        )
        SELECT
            p_period, v_front | nextval('penstock.told'), queue, key, home, home_key, coalesce(home_sent_at_ms, sent_at_ms),
            coalesce(first_leased_ms, leased_at_ms), leased_at_ms, p_now, deliveries + coalesce(home_deliveries, 0),
            served_tier, p_purge.ending, grp, error, CASE WHEN p_purge.history = 2 THEN body END,
            CASE WHEN p_purge.history = 2 THEN attributes END
        FROM gone WHERE p_purge.history > 0
    ), opened AS (
        UPDATE penstock.line SET held = line.held - given.count
        FROM (SELECT grp, count(*) AS count FROM gone WHERE p_purge.is_fifo AND grp IS NOT NULL GROUP BY grp) AS given
        WHERE line.queue = p_purge.queue AND line.grp = given.grp
    )
    SELECT array_agg(lease), array_agg(dedup_id) FILTER (WHERE dedup_id IS NOT NULL),
        array_agg(grp) FILTER (WHERE turn IS NOT NULL), array_agg(leased_at_ms) FILTER (WHERE turn IS NOT NULL),
        array_agg(left_at_ms) FILTER (WHERE turn IS NOT NULL)
    INTO v_leases, v_ids, v_tenants, v_leased_at_ms, v_left_at_ms FROM gone;
    count := cardinality(v_leases);
    -- What its groups took counts no more for a queue that was deleted.
    PERFORM penstock.let_go(p_purge.queue, p_now, v_tenants, v_leased_at_ms, v_left_at_ms)
    WHERE v_tenants IS NOT NULL AND p_purge.ending = 4;
    PERFORM penstock.shrink_leases(v_leases);
    DELETE FROM penstock.dedup WHERE queue = p_purge.queue AND id = ANY (v_ids) AND until_ms IS NULL;
    PERFORM penstock.give_room(p_purge.queue, count);
    PERFORM penstock.refresh_lines(p_purge.queue, v_groups) WHERE v_groups IS NOT NULL;
END $$
