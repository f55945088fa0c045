-- Messages that have waited too long in a tier move up by one. Answers with their groups, NULL for those that have none.
CREATE OR REPLACE FUNCTION penstock.age(
    p_queue integer, p_now bigint, p_tier smallint, p_aging_ms bigint, p_most integer, p_bound bigint
) RETURNS bytea[]
LANGUAGE plpgsql AS $$
DECLARE
    v_groups bytea[];
    v_plain bigint;
    v_last bigint;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT ctid AS place, grp, turn, since_ms, ordinal FROM penstock.marked
        WHERE queue = p_queue AND tier = p_tier AND state = 1 AND since_ms <= p_now - p_aging_ms
        ORDER BY since_ms LIMIT p_most FOR UPDATE SKIP LOCKED
    ), ranked AS (
        SELECT *, row_number() OVER (PARTITION BY grp ORDER BY turn, since_ms, ordinal) AS nth FROM due
    ), turned AS MATERIALIZED (
        SELECT place, nth - 1 + max(
            CASE WHEN nth = 1 AND turn IS NOT NULL
                THEN penstock.next_turn(p_queue, (p_tier - 1)::smallint, grp, p_now) END
        ) OVER (PARTITION BY grp) AS turn
        FROM ranked
    ), aged AS (
        UPDATE penstock.marked AS m SET tier = p_tier - 1, since_ms = m.since_ms + p_aging_ms, turn = t.turn
        FROM turned AS t WHERE m.ctid = t.place RETURNING m.grp
    )
    SELECT array_agg(grp) INTO v_groups FROM aged;
    -- Numbers are in the order of sending, or nearly: the old ones are at the front. Others are not locked: a lease that
    -- passed over them would look for them no more.
    IF (
        SELECT sent_at_ms FROM penstock.ready
        WHERE queue = p_queue AND tier = p_tier AND number >= p_bound ORDER BY number LIMIT 1
    ) <= p_now - p_aging_ms THEN
        SELECT max(number) INTO v_last FROM (
            SELECT number, sent_at_ms FROM penstock.ready
            WHERE queue = p_queue AND tier = p_tier AND number >= p_bound ORDER BY number LIMIT p_most
        ) AS front WHERE sent_at_ms <= p_now - p_aging_ms;
    END IF;
    IF v_last IS NULL THEN
        RETURN v_groups;
    END IF;
    WITH due AS MATERIALIZED (
        SELECT ctid AS place FROM penstock.ready
        WHERE queue = p_queue AND tier = p_tier AND number BETWEEN p_bound AND v_last AND sent_at_ms <= p_now - p_aging_ms
        ORDER BY number LIMIT p_most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM penstock.ready AS r USING due WHERE r.ctid = due.place RETURNING r.*
    ), moved AS (
        INSERT INTO penstock.marked (
            queue, key, tier, state, since_ms, ordinal, visible_at_ms, sent_at_ms, deliveries, deliveries_max,
            first_leased_ms, last_leased_ms, served_tier, body, attributes
        )
        SELECT queue, number << 3 | tier, tier - 1, 1, sent_at_ms + p_aging_ms, nextval('penstock.ordinal'), 0,
            sent_at_ms, 0, 0, 0, 0, tier, body, attributes
        FROM gone ORDER BY number RETURNING 1
    )
    SELECT count(*) INTO v_plain FROM moved;
    RETURN v_groups || array_fill(NULL::bytea, ARRAY[v_plain::integer]);
END $$
