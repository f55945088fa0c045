-- Messages of these groups were settled while they waited: a group without others loses its account of time.
CREATE OR REPLACE FUNCTION penstock.forget_tenants(p_queue integer, p_groups bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_group bytea;
BEGIN
    FOR v_group IN SELECT DISTINCT grp FROM unnest(p_groups) AS grp ORDER BY grp LOOP
        CONTINUE WHEN NOT EXISTS (SELECT 1 FROM penstock.tenant WHERE queue = p_queue AND grp = v_group);
        IF penstock.is_gone(p_queue, v_group) THEN
            DELETE FROM penstock.tenant WHERE queue = p_queue AND grp = v_group;
        END IF;
    END LOOP;
END $$
