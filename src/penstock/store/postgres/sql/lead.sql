-- Whether the server on this connection is the leader, which it becomes if there is none.
CREATE OR REPLACE FUNCTION penstock.lead() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_pid integer;
BEGIN
    -- No answer depends on this: it need not wait for a synchronous standby, which may be away.
    PERFORM set_config('synchronous_commit', 'local', true) WHERE current_setting('synchronous_commit') <> 'off';
    SELECT s.pid INTO v_pid FROM penstock.server AS s WHERE s.is_leader AND penstock.is_connected(s);
    IF v_pid IS NULL THEN
        LOCK TABLE penstock.server IN SHARE ROW EXCLUSIVE MODE;
        -- Another may have become it meanwhile, on a connection that is not in the first look at them.
        PERFORM pg_stat_clear_snapshot();
        SELECT s.pid INTO v_pid FROM penstock.server AS s WHERE s.is_leader AND penstock.is_connected(s);
        IF v_pid IS NULL THEN
            UPDATE penstock.server SET is_leader = (pid = pg_backend_pid());
            RETURN FOUND;
        END IF;
    END IF;
    RETURN v_pid = pg_backend_pid();
END $$
