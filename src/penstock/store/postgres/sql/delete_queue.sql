-- Remove a queue and everything in it. Its row stays, for its history and so that its number is not used again.
-- With the rights of the owner, to whom its sequences belong; for those who may take a queue away.
CREATE OR REPLACE FUNCTION penstock.delete_queue(
    p_queue integer, p_version bigint, p_now bigint, p_history smallint, p_period integer
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_lane oid;
BEGIN
    IF NOT has_table_privilege(session_user, 'penstock.queue', 'UPDATE') THEN
        RAISE EXCEPTION '% may not delete queues', session_user USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM penstock.enter_alone(p_queue, p_version);
    PERFORM penstock.settle_all(p_queue, p_now, 6::smallint, p_history, p_period);
    FOREACH v_lane IN ARRAY (SELECT lanes FROM penstock.queue WHERE number = p_queue) LOOP
        EXECUTE format('DROP SEQUENCE %s', v_lane::regclass);
    END LOOP;
    UPDATE penstock.queue SET deleted_at_ms = p_now, lanes = '{}' WHERE number = p_queue;
    DELETE FROM penstock.room WHERE queue = p_queue;
    DELETE FROM penstock.queue_lock WHERE queue = p_queue;
    DELETE FROM penstock.dedup WHERE queue = p_queue;
    DELETE FROM penstock.sent WHERE queue = p_queue;
    DELETE FROM penstock.sender WHERE queue = p_queue;
    DELETE FROM penstock.escalation WHERE queue = p_queue;
END $$
