-- Number messages that come from another queue, in the order given, and let them wait as if new.
CREATE OR REPLACE FUNCTION penstock.arrive(
    p_queue integer, p_now bigint, p_is_fifo boolean, p_rows penstock.marked[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_lanes oid[];
    v_groups bytea[];
BEGIN
    SELECT lanes INTO v_lanes FROM penstock.queue WHERE number = p_queue;
    SELECT array_agg(DISTINCT grp) INTO v_groups FROM unnest(p_rows) WHERE grp IS NOT NULL;
    IF p_is_fifo THEN
        PERFORM penstock.lock_lines(p_queue, v_groups);
    END IF;
    INSERT INTO penstock.marked (
        queue, key, tier, state, since_ms, ordinal, turn, visible_at_ms, sent_at_ms, deliveries, deliveries_max,
        first_leased_ms, last_leased_ms, served_tier, grp, error, home, home_key, home_sent_at_ms, home_deliveries,
        body, attributes
    )
    SELECT
        p_queue, (nextval(v_lanes[(m.key & 7) + 1]) << 3) | (m.key & 7), m.key & 7, 1, p_now, nextval('penstock.ordinal'),
        m.nth - 1 + max(
            CASE WHEN m.nth = 1 AND m.grp IS NOT NULL AND NOT p_is_fifo
                THEN penstock.next_turn(p_queue, (m.key & 7)::smallint, m.grp, p_now) END
        ) OVER (PARTITION BY m.key & 7, m.grp),
        0, p_now, 0, 0, 0, 0, m.key & 7, m.grp, m.error,
        coalesce(m.home, m.queue), coalesce(m.home_key, m.key), coalesce(m.home_sent_at_ms, m.sent_at_ms),
        coalesce(m.home_deliveries, 0) + m.deliveries, m.body, m.attributes
    FROM (
        SELECT *, row_number() OVER (PARTITION BY key & 7, grp ORDER BY ordinality) AS nth
        FROM unnest(p_rows) WITH ORDINALITY
    ) AS m
    ORDER BY m.ordinality;
    IF p_is_fifo THEN
        PERFORM penstock.refresh_lines(p_queue, v_groups);
    END IF;
END $$
