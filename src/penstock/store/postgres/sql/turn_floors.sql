-- Before which turn no message comes to wait any more in each tier of a queue; nothing if the queue has no turns. They are
-- kept in sequences: their values must hold for every reader, with any snapshot, and must leave no dead rows.
CREATE OR REPLACE FUNCTION penstock.turn_floors(p_queue integer) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    -- The lanes come first, then the floors.
    RETURN ARRAY(
        SELECT coalesce(pg_sequence_last_value(floor), 0)
        FROM unnest((SELECT lanes[6:10] FROM penstock.queue WHERE number = p_queue)) WITH ORDINALITY AS each (floor, n)
        ORDER BY n
    );
END $$
