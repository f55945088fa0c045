-- The next messages of a tier of a FIFO queue: of open groups as much of the front as is wanted, and the ungrouped.
CREATE OR REPLACE FUNCTION penstock.pick_in_line(
    p_queue integer, p_tier smallint, p_quota integer, p_bound bigint, p_are_groups_last boolean
) RETURNS TABLE (is_marked boolean, place tid, turn bigint, size bigint, is_plain boolean, key bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_left integer := p_quota;
    v_plain integer;
    v_first bigint;
    v_line record;
    v_row record;
    v_end bigint;
BEGIN
    -- The ungrouped have a place in every batch, and every other turn of a batch of one.
    v_plain := CASE WHEN p_quota > 1 OR p_are_groups_last THEN 1 ELSE 0 END;
    FOR v_row IN SELECT * FROM penstock.pick(p_queue, p_tier, v_plain, p_bound, 0, NULL, NULL, NULL) LOOP
        is_marked := v_row.is_marked; place := v_row.place; size := v_row.size; is_plain := true;
        key := v_row.key;
        v_left := v_left - 1;
        v_first := key;
        RETURN NEXT;
    END LOOP;
    v_plain := p_quota - v_left;
    FOR v_line IN
        SELECT grp, front, held FROM penstock.line WHERE queue = p_queue AND open_tier = p_tier
        ORDER BY line.turn LIMIT p_quota FOR UPDATE SKIP LOCKED
    LOOP
        EXIT WHEN v_left = 0;
        v_end := CASE WHEN v_line.held > 0 THEN penstock.line_end(p_queue, v_line.grp) END;
        FOR v_row IN
            SELECT ctid, m.state, m.key, m.ordinal, octet_length(m.body) + coalesce(octet_length(m.attributes), 0) AS size
            FROM penstock.marked AS m
            WHERE m.queue = p_queue AND m.grp = v_line.grp AND m.turn IS NULL AND m.ordinal >= v_line.front
            ORDER BY m.ordinal LIMIT v_left FOR UPDATE
        LOOP
            EXIT WHEN v_row.state <> 1 OR v_row.ordinal > v_end;
            is_marked := true; place := v_row.ctid; size := v_row.size; is_plain := false;
            key := v_row.key;
            v_left := v_left - 1;
            RETURN NEXT;
        END LOOP;
    END LOOP;
    IF v_left > 0 THEN
        FOR v_row IN SELECT * FROM penstock.pick(
            p_queue, p_tier, v_left + v_plain, p_bound, 0, NULL, NULL, NULL
        ) LOOP
            -- The one taken at the beginning comes again.
            CONTINUE WHEN v_row.key = v_first;
            EXIT WHEN v_left = 0;
            v_left := v_left - 1;
            is_marked := v_row.is_marked; place := v_row.place; size := v_row.size; is_plain := true;
            key := v_row.key;
            RETURN NEXT;
        END LOOP;
    END IF;
END $$
