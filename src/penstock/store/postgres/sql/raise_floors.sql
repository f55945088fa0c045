-- Raise the floor of each tier to the turn that is served there next, and answer with the floors. They only rise: one
-- raises them at a time, and who finds another at it leaves it to that one.
CREATE OR REPLACE FUNCTION penstock.raise_floors(p_queue integer, p_turns bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_floors bigint[] := penstock.turn_floors(p_queue);
BEGIN
    IF EXISTS (SELECT 1 FROM unnest(v_floors, p_turns) AS tier (floor, turn) WHERE turn > floor)
        AND EXISTS (SELECT 1 FROM penstock.queue_lock WHERE queue = p_queue FOR UPDATE SKIP LOCKED)
    THEN
        -- Read again: the one who was at it before may have raised them further.
        PERFORM setval(lane.floor, p_turns[lane.n])
        FROM penstock.queue AS q CROSS JOIN LATERAL unnest(q.lanes[6:10]) WITH ORDINALITY AS lane (floor, n)
        WHERE q.number = p_queue AND p_turns[lane.n] > coalesce(pg_sequence_last_value(lane.floor), 0);
        v_floors := penstock.turn_floors(p_queue);
    END IF;
    -- Where one snapshot is kept for all statements, it may be older than the floor, and not show who has not seen that.
    IF v_floors = '{}' OR current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN ARRAY[0, 0, 0, 0, 0];
    END IF;
    RETURN v_floors;
END $$
