-- Messages of these groups of a standard queue are held now (p_sign 1), or no longer (-1); a group is named once for each.
-- No transaction waits for another: rows of a group that are locked are passed over, and the rest become one.
CREATE OR REPLACE FUNCTION penstock.count_held(p_queue integer, p_now bigint, p_groups bytea[], p_sign integer) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_stretch bigint := p_now / 10000;
    v_places tid[];
    v_nths integer[];
    v_groups bytea[];
    v_held bigint[];
BEGIN
    SELECT array_agg(place), array_agg(nth), array_agg(grp), array_agg(total)
    INTO v_places, v_nths, v_groups, v_held
    FROM (
        SELECT a.grp, own.place, row_number() OVER (PARTITION BY a.grp)::integer AS nth,
            a.change + coalesce(sum(own.held) OVER (PARTITION BY a.grp), 0)::bigint AS total
        FROM (SELECT grp, count(*) * p_sign AS change FROM unnest(p_groups) AS grp GROUP BY grp) AS a
        LEFT JOIN LATERAL (
            SELECT h.ctid AS place, h.held FROM penstock.tenant_held AS h
            WHERE h.queue = p_queue AND h.grp = a.grp AND h.stretch >= CASE WHEN EXISTS (
                SELECT 1 FROM penstock.tenant_held WHERE queue = p_queue AND grp = a.grp AND stretch >= v_stretch
            ) THEN v_stretch ELSE 0 END
            FOR UPDATE SKIP LOCKED
        ) AS own ON true
    ) AS each;
    -- Another statement: rows that others have changed since the last one began are seen at their places.
    WITH gone AS (
        DELETE FROM penstock.tenant_held WHERE ctid = ANY (ARRAY(
            SELECT place FROM unnest(v_places, v_nths, v_held) AS t (place, nth, held)
            WHERE nth > 1
        ))
    ), changed AS (
        UPDATE penstock.tenant_held AS h
        SET stretch = greatest(h.stretch, v_stretch), held = t.held, digits = penstock.digits(t.held)
        FROM unnest(v_places, v_nths, v_held) AS t (place, nth, held)
        WHERE h.ctid = t.place AND t.nth = 1
    )
    INSERT INTO penstock.tenant_held (queue, grp, stretch, held, digits)
    SELECT p_queue, grp, v_stretch, held, penstock.digits(held)
    FROM unnest(v_places, v_groups, v_held) AS t (place, grp, held) WHERE place IS NULL;
END $$
