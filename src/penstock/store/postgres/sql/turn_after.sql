-- The turn in which the next message of a group is served: behind those of its own group, beside those of others, and
-- not before p_first.
CREATE OR REPLACE FUNCTION penstock.turn_after(p_queue integer, p_tier smallint, p_group bytea, p_first bigint)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_last bigint;
BEGIN
    SELECT turn INTO v_last FROM penstock.marked
    WHERE queue = p_queue AND grp = p_group AND tier = p_tier AND turn >= p_first ORDER BY turn DESC LIMIT 1;
    RETURN greatest(p_first, v_last + 1);
END $$
