-- The ordinal from which on nothing of a group is served, of which messages are leased: that of the first of them where the
-- queue opens groups early, and otherwise 0, which is before all.
CREATE OR REPLACE FUNCTION penstock.line_end(p_queue integer, p_group bytea) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF coalesce((SELECT (settings::json ->> 'opens_early')::boolean FROM penstock.queue WHERE number = p_queue), false) THEN
        RETURN (
            SELECT ordinal FROM penstock.leased
            WHERE queue = p_queue AND grp = p_group AND turn IS NULL ORDER BY ordinal LIMIT 1
        );
    END IF;
    RETURN 0;
END $$
