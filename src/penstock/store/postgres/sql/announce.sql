-- Note that a server is there, by the connection that calls this. If no other is, every lease begins again at full length,
-- unless the server was there before and has only lost its connection.
CREATE OR REPLACE FUNCTION penstock.announce(p_now bigint, p_is_back boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- No answer depends on this: it need not wait for a synchronous standby, which may be away.
    PERFORM set_config('synchronous_commit', 'local', true) WHERE current_setting('synchronous_commit') <> 'off';
    LOCK TABLE penstock.server IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM penstock.server AS s WHERE NOT penstock.is_connected(s) OR s.pid = pg_backend_pid();
    IF NOT p_is_back AND NOT EXISTS (SELECT 1 FROM penstock.server) THEN
        PERFORM penstock.rearm(p_now);
    END IF;
    INSERT INTO penstock.server (pid, role, began_at)
    SELECT pid, usename, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid();
END $$
