-- Servers compare their clocks: the latest time any of them has seen is the time of all.
CREATE OR REPLACE FUNCTION penstock.meet(p_now bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint;
BEGIN
    -- No answer depends on this: it need not wait for a synchronous standby, which may be away.
    PERFORM set_config('synchronous_commit', 'local', true) WHERE current_setting('synchronous_commit') <> 'off';
    UPDATE penstock.moment SET at_ms = p_now WHERE at_ms < p_now;
    SELECT at_ms INTO v_at FROM penstock.moment;
    RETURN v_at;
END $$
