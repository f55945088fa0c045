-- Settle every message of a queue, leased or not, and answer with how many.
CREATE OR REPLACE FUNCTION penstock.purge(
    p_queue integer, p_version bigint, p_now bigint, p_history smallint, p_period integer
) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    -- The one who has the queue for itself waits for everyone who is at work in it.
    PERFORM pg_advisory_xact_lock(hashtext('penstock.queue'), p_queue);
    PERFORM penstock.enter(p_queue, p_version);
    RETURN penstock.settle_all(p_queue, p_now, 4::smallint, p_history, p_period);
END $$
