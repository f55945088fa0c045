-- Take a queue away. Its row stays, for its history and so that its number is not used again. What is more in it than one turn
-- settles goes in further turns (`purge_turn`), out of sight.
-- Runs with the rights of the owner, to whom the sequences belong, for every role that may update queues.
CREATE OR REPLACE FUNCTION penstock.delete_queue(
    p_queue integer, p_version bigint, p_now bigint, p_id bigint, p_is_fifo boolean, p_history smallint,
    p_most integer, p_bytes_most bigint, p_period integer
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_lane oid;
BEGIN
    IF NOT has_table_privilege(session_user, 'penstock.queue', 'UPDATE') THEN
        RAISE EXCEPTION '% may not delete queues', session_user USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM penstock.begin_purge(
        p_queue, p_version, p_now, p_id, p_is_fifo, p_history, 6::smallint, p_most, p_bytes_most, p_period
    );
    FOREACH v_lane IN ARRAY (SELECT lanes FROM penstock.queue WHERE number = p_queue) LOOP
        EXECUTE format('DROP SEQUENCE %s', v_lane::regclass);
    END LOOP;
    UPDATE penstock.queue SET deleted_at_ms = p_now, lanes = '{}' WHERE number = p_queue;
    DELETE FROM penstock.room WHERE queue = p_queue;
    DELETE FROM penstock.queue_lock WHERE queue = p_queue;
END $$
