-- The turn of a tier of a standard queue that is served now, for a message that comes to wait there; where no group waits,
-- p_else. Never before the floor of the tier: leases no longer look there. The floor is read after this transaction
-- has its id, so that a lease knows who may not have seen it (docs/design/postgres-store.md, Dead rows).
CREATE OR REPLACE FUNCTION penstock.first_turn(p_queue integer, p_tier smallint, p_else bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_floor bigint;
BEGIN
    PERFORM pg_current_xact_id();
    v_floor := coalesce((penstock.turn_floors(p_queue))[p_tier + 1], 0);
    RETURN coalesce((
        SELECT turn FROM penstock.marked
        WHERE queue = p_queue AND tier = p_tier AND state = 1 AND turn >= v_floor ORDER BY turn LIMIT 1
    ), greatest(v_floor, p_else));
END $$
