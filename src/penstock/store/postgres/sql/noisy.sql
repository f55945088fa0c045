-- The groups of a standard queue that hold more than their share of what is leased, and how many messages each holds.
CREATE OR REPLACE FUNCTION penstock.noisy(p_queue integer) RETURNS TABLE (grp bytea, held bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_settings json;
    v_percent bigint;
    v_least bigint;
    v_leased bigint;
BEGIN
    -- A queue without groups pays for this question alone.
    IF NOT EXISTS (SELECT 1 FROM penstock.leased WHERE queue = p_queue AND turn IS NOT NULL) THEN
        RETURN;
    END IF;
    SELECT settings::json INTO v_settings FROM penstock.queue WHERE number = p_queue;
    v_percent := coalesce((v_settings ->> 'noisy_percent')::bigint, 10);
    v_least := coalesce((v_settings ->> 'noisy_leased_min')::bigint, 30);
    SELECT sum(e.held) INTO v_leased FROM penstock.lease AS e WHERE e.queue = p_queue;
    IF v_percent = 100 OR v_leased < v_least THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT l.grp, count(*) FROM penstock.leased AS l WHERE l.queue = p_queue AND l.turn IS NOT NULL
    GROUP BY l.grp HAVING count(*) > greatest(v_least - 1, v_percent * v_leased / 100);
END $$
