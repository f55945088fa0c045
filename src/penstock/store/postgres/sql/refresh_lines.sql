-- Open or close groups of a FIFO queue, each at the tier it now belongs to; a group without messages is forgotten.
-- The front of a group is an ordinal that none of its messages is before: what is left of those of before is not looked at.
-- It rises when a group opens: then no message of it is leased and could come back before it, and senders to the group
-- lock its row. A group of which messages are leased opens only where the queue says so (`opens_early`),
-- and if its first one is before all of them.
CREATE OR REPLACE FUNCTION penstock.refresh_lines(p_queue integer, p_groups bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_group bytea;
    v_line penstock.line;
    v_head smallint;
    v_front bigint;
    v_tier smallint;
    v_end bigint;
BEGIN
    FOR v_group IN SELECT DISTINCT grp FROM unnest(p_groups) AS grp WHERE grp IS NOT NULL ORDER BY grp LOOP
        SELECT * INTO v_line FROM penstock.line WHERE queue = p_queue AND grp = v_group FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        v_tier := NULL;
        v_head := NULL;
        SELECT state, ordinal INTO v_head, v_front FROM penstock.marked
        WHERE queue = p_queue AND grp = v_group AND turn IS NULL AND ordinal >= v_line.front ORDER BY ordinal LIMIT 1;
        IF v_head IS NULL AND v_line.held = 0 THEN
            DELETE FROM penstock.line WHERE queue = p_queue AND grp = v_group;
            CONTINUE;
        END IF;
        v_end := CASE WHEN v_line.held > 0 AND v_head = 1 THEN penstock.line_end(p_queue, v_group) END;
        IF v_head = 1 AND (v_line.held = 0 OR v_front < v_end) THEN
            -- One tier after the other, and by ordinal: only the index of groups has this order.
            FOR v_each IN 0 .. 4 LOOP
                SELECT tier INTO v_tier FROM penstock.marked
                WHERE queue = p_queue AND grp = v_group AND tier = v_each AND turn IS NULL AND state = 1
                    AND ordinal >= v_front
                ORDER BY ordinal LIMIT 1;
                EXIT WHEN FOUND;
            END LOOP;
        END IF;
        IF v_tier IS DISTINCT FROM v_line.open_tier THEN
            UPDATE penstock.line
            SET open_tier = v_tier, turn = CASE WHEN v_tier IS NULL THEN turn ELSE nextval('penstock.turn') END,
                front = CASE WHEN v_tier IS NULL THEN front ELSE v_front END
            WHERE queue = p_queue AND grp = v_group;
        END IF;
    END LOOP;
END $$
