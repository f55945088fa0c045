-- The turn of the next message of a group. In an empty group, turns begin at the time: later than any that was served.
CREATE OR REPLACE FUNCTION penstock.next_turn(p_queue integer, p_tier smallint, p_group bytea, p_now bigint)
RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    RETURN penstock.turn_after(p_queue, p_tier, p_group, penstock.first_turn(p_queue, p_tier, p_now));
END $$
