-- The turn in which the next message of a group is served: behind those of its own group, beside those of others.
CREATE OR REPLACE FUNCTION penstock.next_turn(p_queue integer, p_tier smallint, p_group bytea, p_now bigint)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_first bigint;
    v_last bigint;
BEGIN
    SELECT turn INTO v_first FROM penstock.marked
    WHERE queue = p_queue AND tier = p_tier AND state = 1 AND turn IS NOT NULL ORDER BY turn LIMIT 1;
    SELECT turn INTO v_last FROM penstock.marked
    WHERE queue = p_queue AND grp = p_group AND tier = p_tier AND turn IS NOT NULL ORDER BY turn DESC LIMIT 1;
    -- Where nobody waits, turns begin at the time: later than any that was served.
    RETURN greatest(coalesce(v_first, p_now), v_last + 1);
END $$
