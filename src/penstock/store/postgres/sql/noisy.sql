-- The groups of a standard queue that hold more than their share of what is leased, or took more than their share of the
-- time lately (core/queue/tenants.py); and how many messages each holds.
CREATE OR REPLACE FUNCTION penstock.noisy(p_queue integer, p_now bigint) RETURNS TABLE (grp bytea, held bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- A lease that has ended for longer has lapsed. Those of before are not looked at: what is left of them may be very much.
    v_from bigint := p_now - 60000;
    v_minute bigint := p_now / 60000;
    v_settings json;
    v_percent bigint;
    v_least bigint;
    v_leased bigint;
    v_most double precision;
    v_loud bytea[] := ARRAY(SELECT DISTINCT grp FROM penstock.tenant WHERE queue = p_queue AND is_loud);
BEGIN
    SELECT sum(e.held) INTO v_leased FROM penstock.lease AS e WHERE e.queue = p_queue AND e.wakes_at_ms > v_from;
    IF v_loud = '{}' AND v_leased IS NULL THEN
        RETURN;
    END IF;
    SELECT settings::json INTO v_settings FROM penstock.queue WHERE number = p_queue;
    IF v_loud <> '{}' THEN
        v_percent := coalesce((v_settings ->> 'noisy_time_percent')::bigint, 10);
        v_most := floor(v_percent * floor(penstock.taken_ms(p_queue, '', v_minute)) / 100);
        v_loud := ARRAY(
            SELECT grp FROM unnest(v_loud) AS loud (grp)
            WHERE v_percent < 100 AND floor(penstock.taken_ms(p_queue, grp, v_minute)) > v_most
        );
    END IF;
    v_percent := coalesce((v_settings ->> 'noisy_percent')::bigint, 10);
    v_least := coalesce((v_settings ->> 'noisy_leased_min')::bigint, 30);
    IF v_percent = 100 OR v_leased IS NULL OR v_leased < v_least THEN
        v_most := NULL;
        IF v_loud = '{}' THEN
            RETURN;
        END IF;
    ELSE
        v_most := greatest(v_least - 1, v_percent * v_leased / 100);
    END IF;
    RETURN QUERY
    WITH holder AS MATERIALIZED (
        -- By the leases there are. An index of what groups hold would have all in it that they held before.
        SELECT l.grp, count(*) AS held FROM penstock.lease AS e CROSS JOIN LATERAL (
            SELECT l.grp FROM penstock.leased AS l WHERE l.lease = e.number AND l.turn IS NOT NULL OFFSET 0
        ) AS l
        WHERE e.queue = p_queue AND e.wakes_at_ms > v_from GROUP BY l.grp
    )
    SELECT h.grp, h.held FROM holder AS h WHERE h.held > v_most AND h.grp <> ALL (v_loud)
    UNION ALL
    SELECT loud.grp, coalesce((SELECT h.held FROM holder AS h WHERE h.grp = loud.grp), 0)
    FROM unnest(v_loud) AS loud (grp);
END $$
