-- Have a queue for oneself until the transaction ends: wait for everyone who is at work in it. Whoever comes meanwhile waits
-- behind, and a transaction of a caller's may stay open for hours, or a backup look at a sequence of the queue: so nothing
-- in this transaction is waited for for long.
CREATE OR REPLACE FUNCTION penstock.enter_alone(p_queue integer, p_version bigint) RETURNS oid[]
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', '500ms', true);
    PERFORM pg_advisory_xact_lock(hashtext('penstock.queue'), p_queue);
    RETURN penstock.enter(p_queue, p_version);
END $$
