-- Remove a queue and everything in it. Its row stays, for its history and so that its number is not used again.
CREATE OR REPLACE FUNCTION penstock.delete_queue(
    p_queue integer, p_version bigint, p_now bigint, p_history smallint, p_period integer
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_lane oid;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('penstock.queue'), p_queue);
    PERFORM penstock.enter(p_queue, p_version);
    PERFORM penstock.settle_all(p_queue, p_now, 6::smallint, p_history, p_period);
    FOREACH v_lane IN ARRAY (SELECT lanes FROM penstock.queue WHERE number = p_queue) LOOP
        EXECUTE format('DROP SEQUENCE %s', v_lane::regclass);
    END LOOP;
    UPDATE penstock.queue SET deleted_at_ms = p_now, lanes = '{}' WHERE number = p_queue;
    DELETE FROM penstock.dedup WHERE queue = p_queue;
    DELETE FROM penstock.sent WHERE queue = p_queue;
    DELETE FROM penstock.sender WHERE queue = p_queue;
    DELETE FROM penstock.escalation WHERE queue = p_queue;
END $$
