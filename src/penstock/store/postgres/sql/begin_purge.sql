-- Decide that all messages of a queue go, leased or not: those that were sent before this. The first turn is part of the decision,
-- so what is not much goes at once; the rest goes in turns of their own. Answers as `purge_turn` does.
CREATE OR REPLACE FUNCTION penstock.begin_purge(
    p_queue integer, p_version bigint, p_now bigint, p_id bigint, p_is_fifo boolean, p_history smallint, p_ending smallint,
    p_most integer, p_bytes_most bigint, p_period integer, OUT settled bigint, OUT is_over boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_lanes oid[] := penstock.enter_alone(p_queue, p_version);
BEGIN
    -- Every sender is done, or waits: its messages get higher numbers.
    INSERT INTO penstock.purge (id, queue, is_fifo, history, ending, lasts, turned_at_ms)
    SELECT p_id, p_queue, p_is_fifo, p_history, p_ending, array_agg(coalesce(pg_sequence_last_value(lane), -1) ORDER BY n), p_now
    FROM unnest(v_lanes[1:5]) WITH ORDINALITY AS each (lane, n);
    SELECT * INTO settled, is_over FROM penstock.purge_turn(p_id, p_now, p_most, p_bytes_most, p_period, true);
END $$
