-- Settle plain messages of a queue that is purged, at most p_most; answers with how many, and where to go on in each tier.
CREATE OR REPLACE FUNCTION penstock.purge_plain(
    p_purge penstock.purge, p_now bigint, p_most integer, p_period integer, OUT count bigint, OUT froms bigint[]
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_front bigint := pg_current_xact_id()::text::bigint << 24;
    v_froms bigint[] := p_purge.froms;
    v_total bigint := 0;
    v_count bigint;
    v_last bigint;
BEGIN
    FOR v_tier IN 0 .. 4 LOOP
        WITH due AS MATERIALIZED (
            SELECT ctid AS place FROM penstock.ready
            WHERE queue = p_purge.queue AND tier = v_tier
                AND number BETWEEN v_froms[v_tier + 1] AND p_purge.lasts[v_tier + 1]
            ORDER BY number LIMIT p_most - v_total FOR UPDATE SKIP LOCKED
        ), gone AS (
            DELETE FROM penstock.ready AS r USING due WHERE r.ctid = due.place RETURNING r.*
        ), told AS (
            INSERT INTO penstock.history (
                period, at_offset, queue, key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms, deliveries, tier,
                ending, body, attributes
            )
            SELECT
                p_period, v_front | nextval('penstock.told'), p_purge.queue, number << 3 | tier, sent_at_ms, 0, 0, p_now, 0,
                tier, p_purge.ending, CASE WHEN p_purge.history = 2 THEN body END,
                CASE WHEN p_purge.history = 2 THEN attributes END
            FROM gone WHERE p_purge.history > 0
        )
        SELECT count(*), max(number) INTO v_count, v_last FROM gone;
        v_total := v_total + v_count;
        v_froms[v_tier + 1] := coalesce(v_last + 1, v_froms[v_tier + 1]);
        EXIT WHEN v_total >= p_most;
    END LOOP;
    PERFORM penstock.give_room(p_purge.queue, v_total) WHERE v_total > 0;
    count := v_total;
    froms := v_froms;
END $$
