-- The groups of a standard queue that hold more than their share of what is leased, or took more than their share of the
-- time lately (core/queue/message_groups.py); and how many messages each holds. Up to 500 leases are looked at. If more are out, what
-- the largest groups hold together is taken for what is leased, should that be more: ungrouped messages may be left out then.
CREATE OR REPLACE FUNCTION penstock.noisy(p_queue integer, p_now bigint) RETURNS TABLE (grp bytea, held bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- A lease that has ended for longer has lapsed. Those of before are not looked at: what is left of them may be very much.
    v_from bigint := p_now - 60000;
    v_minute bigint := p_now / 60000;
    -- What a group holds may be counted in some rows, so one that holds enough has a row with a share of that.
    c_rows CONSTANT integer := 8;
    c_leases CONSTANT integer := 500;
    c_largest CONSTANT integer := 500;
    v_settings json;
    v_percent bigint;
    v_least bigint;
    v_enough bigint;
    v_leased bigint;
    v_held bigint;
    v_digits smallint;
    v_most double precision;
    v_loud bytea[] := ARRAY(SELECT DISTINCT grp FROM penstock.tenant WHERE queue = p_queue AND is_loud);
BEGIN
    SELECT digits INTO v_digits FROM penstock.tenant_held WHERE queue = p_queue AND digits > 0 ORDER BY digits DESC LIMIT 1;
    IF v_loud = '{}' AND v_digits IS NULL THEN
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
    RETURN QUERY
    SELECT loud.grp, coalesce((
        SELECT sum(h.held)::bigint FROM penstock.tenant_held AS h WHERE h.queue = p_queue AND h.grp = loud.grp
    ), 0) FROM unnest(v_loud) AS loud (grp);
    v_percent := coalesce((v_settings ->> 'noisy_percent')::bigint, 10);
    v_least := coalesce((v_settings ->> 'noisy_leased_min')::bigint, 30);
    -- In all its rows together no group holds as much as that.
    IF v_percent = 100 OR v_digits IS NULL OR c_rows * 2 ^ v_digits <= v_least THEN
        RETURN;
    END IF;
    -- None holds so much that more leases than these would let it be quiet.
    v_enough := c_rows * 2 ^ v_digits * 100 / greatest(1, v_percent);
    SELECT sum(e.held) INTO v_leased FROM (
        SELECT held FROM penstock.lease WHERE queue = p_queue AND wakes_at_ms > v_from
        ORDER BY wakes_at_ms LIMIT least(v_enough, c_leases)
    ) AS e;
    IF v_enough > c_leases THEN
        SELECT sum(g.held) INTO v_held FROM (
            SELECT held FROM penstock.tenant_held WHERE queue = p_queue AND digits > 0 ORDER BY digits DESC LIMIT c_largest
        ) AS g;
        v_leased := greatest(v_leased, v_held);
    END IF;
    IF v_leased IS NULL OR v_leased < v_least THEN
        RETURN;
    END IF;
    v_most := greatest(v_least - 1, v_percent * v_leased / 100);
    RETURN QUERY
    SELECT h.grp, own.held FROM (
        SELECT grp, min(stretch) AS stretch FROM penstock.tenant_held
        WHERE queue = p_queue AND digits > 0 AND digits >= penstock.digits((v_most / c_rows)::bigint)
        GROUP BY grp
    ) AS h CROSS JOIN LATERAL (
        -- Not of before, where rows are that it was.
        SELECT sum(held)::bigint AS held FROM penstock.tenant_held
        WHERE queue = p_queue AND grp = h.grp AND stretch >= h.stretch
    ) AS own
    WHERE own.held > v_most AND h.grp <> ALL (v_loud);
END $$
