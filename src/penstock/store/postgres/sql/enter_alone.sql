-- Take a queue exclusively until the transaction ends, after all transactions that work in it. New ones queue up behind, and a
-- caller's transaction may stay open for hours, or a backup read a sequence of the queue: so this transaction waits for no lock
-- for long.
--
-- ALTER SEQUENCE takes a lock that excludes that of `enter`, and this one changes nothing. It is for the owner of the
-- sequence, so the function runs with the owner's rights, for those who may write messages.
CREATE OR REPLACE FUNCTION penstock.enter_alone(p_queue integer, p_version bigint) RETURNS oid[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'penstock.ready', 'UPDATE') THEN
        RAISE EXCEPTION '% may not change queues', session_user USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM set_config('lock_timeout', '500ms', true);
    IF to_regclass('penstock.lane_' || p_queue || '_0') IS NOT NULL THEN
        EXECUTE format('ALTER SEQUENCE penstock.lane_%s_0 OWNED BY NONE', p_queue);
    END IF;
    RETURN penstock.enter(p_queue, p_version);
END $$
