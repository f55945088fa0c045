-- The first turn in which a group waits in each tier of a standard queue, NULL where none does. Bounds are turns before
-- which nothing waits; one that is above the floor is of another life of the database, and is not believed.
CREATE OR REPLACE FUNCTION penstock.first_turns(p_queue integer, p_bounds bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_floors bigint[] := penstock.turn_floors(p_queue);
    v_firsts bigint[] := ARRAY[NULL, NULL, NULL, NULL, NULL]::bigint[];
    v_bound bigint;
BEGIN
    FOR v_tier IN 0 .. 4 LOOP
        v_bound := CASE WHEN p_bounds[v_tier + 1] <= v_floors[v_tier + 1] THEN p_bounds[v_tier + 1] ELSE 0 END;
        v_firsts[v_tier + 1] := (
            SELECT turn FROM penstock.marked
            WHERE queue = p_queue AND tier = v_tier AND state = 1 AND turn >= v_bound ORDER BY turn LIMIT 1
        );
    END LOOP;
    RETURN v_firsts;
END $$
