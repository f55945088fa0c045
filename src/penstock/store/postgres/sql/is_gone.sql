-- Whether a group of a standard queue has no messages any more.
CREATE OR REPLACE FUNCTION penstock.is_gone(p_queue integer, p_group bytea) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN NOT EXISTS (SELECT 1 FROM penstock.marked WHERE queue = p_queue AND grp = p_group AND turn IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM penstock.leased WHERE queue = p_queue AND grp = p_group AND turn IS NOT NULL);
END $$
