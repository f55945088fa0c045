-- Take groups of a FIFO queue in the order of their names, so that no sender adds to one of them meanwhile. A group that has
-- no row has no messages: those that come are not before the ordinal that was drawn last.
CREATE OR REPLACE FUNCTION penstock.lock_lines(p_queue integer, p_groups bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO penstock.line (queue, grp, front)
    SELECT p_queue, grp, coalesce(pg_sequence_last_value('penstock.ordinal'), 0)
    FROM (SELECT DISTINCT grp FROM unnest(p_groups) AS grp WHERE grp IS NOT NULL ORDER BY grp) AS named
    ON CONFLICT (queue, grp) DO UPDATE SET held = line.held;
END $$
