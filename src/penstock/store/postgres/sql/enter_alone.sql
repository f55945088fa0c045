-- Have a queue for oneself until the transaction ends: wait for everyone who is at work in it. Whoever comes meanwhile waits
-- behind, and a transaction of a caller's may stay open for hours, or a backup look at a sequence of the queue: so nothing
-- in this transaction is waited for for long.
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
