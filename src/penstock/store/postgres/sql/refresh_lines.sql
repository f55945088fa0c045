-- Open or close groups of a FIFO queue, each at the tier it now belongs to; a group without messages is forgotten.
CREATE OR REPLACE FUNCTION penstock.refresh_lines(p_queue integer, p_groups bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_group bytea;
    v_line penstock.line;
    v_head smallint;
    v_tier smallint;
BEGIN
    FOR v_group IN SELECT DISTINCT grp FROM unnest(p_groups) AS grp WHERE grp IS NOT NULL ORDER BY grp LOOP
        SELECT * INTO v_line FROM penstock.line WHERE queue = p_queue AND grp = v_group FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        v_tier := NULL;
        v_head := NULL;
        SELECT state INTO v_head FROM penstock.marked
        WHERE queue = p_queue AND grp = v_group AND turn IS NULL ORDER BY ordinal LIMIT 1;
        IF v_head IS NULL AND v_line.held = 0 THEN
            DELETE FROM penstock.line WHERE queue = p_queue AND grp = v_group;
            CONTINUE;
        END IF;
        IF v_line.held = 0 AND v_head = 1 THEN
            SELECT min(tier) INTO v_tier FROM penstock.marked
            WHERE queue = p_queue AND grp = v_group AND turn IS NULL AND state = 1;
        END IF;
        IF v_tier IS DISTINCT FROM v_line.open_tier THEN
            UPDATE penstock.line
            SET open_tier = v_tier, turn = CASE WHEN v_tier IS NULL THEN turn ELSE nextval('penstock.turn') END
            WHERE queue = p_queue AND grp = v_group;
        END IF;
    END LOOP;
END $$
