-- Take groups of a FIFO queue in the order of their names, so that nobody sends to one of them meanwhile.
CREATE OR REPLACE FUNCTION penstock.lock_lines(p_queue integer, p_groups bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO penstock.line (queue, grp)
    SELECT DISTINCT p_queue, grp FROM unnest(p_groups) AS grp WHERE grp IS NOT NULL ORDER BY grp
    ON CONFLICT (queue, grp) DO UPDATE SET held = line.held;
END $$
