-- Settle some messages of a queue that is purged or was deleted; answers with how many were settled so far, and whether that
-- was all. One turn of a purge runs at a time, on any server.
--
-- A pass goes over plain messages, then marked ones, then leases. A message may come back behind it, and what another
-- transaction holds is left out: so passes are made until nothing is left. While others are at work a turn takes messages of one
-- kind, so that it waits for their locks in the order in which they take them.
CREATE OR REPLACE FUNCTION penstock.purge_turn(
    p_id bigint, p_now bigint, p_most integer, p_bytes_most bigint, p_period integer, p_is_alone boolean,
    OUT settled bigint, OUT is_over boolean
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_purge penstock.purge;
    v_froms bigint[];
    v_found record;
    v_count bigint;
    v_is_idle boolean;
    v_entered bigint;
    v_table text;
    v_others bigint;
BEGIN
    SELECT * INTO v_purge FROM penstock.purge WHERE id = p_id FOR UPDATE;
    settled := v_purge.settled;
    is_over := v_purge.ended_at_ms IS NOT NULL;
    IF is_over THEN
        RETURN;
    END IF;
    -- As `enter` does, if the queue was not deleted.
    v_entered := pg_sequence_last_value(to_regclass('penstock.lane_' || v_purge.queue || '_0'));
    SELECT count, froms INTO v_count, v_froms FROM penstock.purge_plain(v_purge, p_now, p_most, p_period);
    v_is_idle := v_count = 0;
    IF v_is_idle OR (p_is_alone AND v_count < p_most) THEN
        SELECT * INTO v_found FROM penstock.purge_marked(
            v_purge, p_now, (p_most - v_count)::integer, p_bytes_most, p_period
        );
        v_count := v_count + v_found.count;
        v_froms[6] := coalesce(v_found.next, v_froms[6]);
        v_is_idle := v_is_idle AND v_found.next IS NULL;
    END IF;
    IF v_is_idle OR (p_is_alone AND v_count < p_most) THEN
        SELECT * INTO v_found FROM penstock.purge_leases(v_purge, p_now, (p_most - v_count)::integer, p_period);
        v_count := v_count + v_found.count;
        v_froms[7] := coalesce(v_found.next, v_froms[7]);
        v_is_idle := v_is_idle AND v_found.next IS NULL;
    END IF;
    IF v_is_idle OR (p_is_alone AND v_count < p_most) THEN
        is_over := NOT penstock.purge_left(v_purge);
        v_froms := array_fill(0::bigint, ARRAY[7]);
    END IF;
    IF is_over AND v_purge.ending = 6 THEN
        -- What there was besides messages.
        FOREACH v_table IN ARRAY ARRAY['dedup', 'sent', 'sender', 'escalation', 'line', 'tenant', 'tenant_held'] LOOP
            EXECUTE format(
                'DELETE FROM penstock.%1$I WHERE ctid = ANY (ARRAY('
                'SELECT ctid FROM penstock.%1$I WHERE queue = $1 LIMIT $2))', v_table
            ) USING v_purge.queue, p_most;
            GET DIAGNOSTICS v_others = ROW_COUNT;
            is_over := is_over AND v_others < p_most;
        END LOOP;
    END IF;
    settled := settled + v_count;
    UPDATE penstock.purge
    SET settled = v_purge.settled + v_count, froms = v_froms, turned_at_ms = p_now,
        ended_at_ms = CASE WHEN purge_turn.is_over THEN p_now END
    WHERE id = p_id;
END $$
