-- Settle a message that rests until later than now; answers with whether it did. It is found by its key in this queue, or by the
-- queue it was first sent to.
CREATE OR REPLACE FUNCTION penstock.cancel(
    p_queue integer, p_version bigint, p_now bigint, p_home integer, p_home_key bigint, p_is_fifo boolean,
    p_history smallint, p_period integer
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_key bigint;
    v_group bytea;
BEGIN
    PERFORM penstock.enter(p_queue, p_version);
    SELECT key, grp INTO v_key, v_group FROM (
        SELECT key, grp FROM penstock.marked
        WHERE queue = p_queue AND key = p_home_key AND p_home = p_queue AND home IS NULL
        UNION ALL
        SELECT key, grp FROM penstock.marked WHERE home = p_home AND home_key = p_home_key AND queue + 0 = p_queue
    ) AS m LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_is_fifo THEN
        PERFORM penstock.lock_lines(p_queue, ARRAY[v_group]);
    END IF;
    -- A lease may have taken it since it was found.
    PERFORM 1 FROM penstock.marked
    WHERE queue = p_queue AND key = v_key AND state = 2 AND visible_at_ms > p_now FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM penstock.settle_marked(p_queue, p_now, ARRAY[v_key], 7::smallint, p_is_fifo, p_history, p_period);
    RETURN true;
END $$
