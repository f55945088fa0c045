-- Say that a server is there, and what it does. Answers with whether an operator wants it to stop; with NULL, and without
-- an effect, while another process of the same name is heard.
CREATE OR REPLACE FUNCTION penstock.beat(
    p_name text, p_incarnation bigint, p_address text, p_version text, p_state text, p_now bigint, p_lost_ms bigint
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_is_to_drain boolean;
BEGIN
    -- No answer relies on this: it need not wait for a synchronous standby, which may be away.
    PERFORM set_config('synchronous_commit', 'local', true) WHERE current_setting('synchronous_commit') <> 'off';
    INSERT INTO penstock.node AS known (name, incarnation, address, version, state, started_at_ms, beat_at)
    VALUES (p_name, p_incarnation, p_address, p_version, p_state, p_now, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET
        incarnation = excluded.incarnation, address = excluded.address, version = excluded.version,
        state = excluded.state, beat_at = excluded.beat_at,
        started_at_ms = CASE
            WHEN known.incarnation = excluded.incarnation THEN known.started_at_ms ELSE excluded.started_at_ms END,
        is_to_drain = known.is_to_drain AND known.incarnation = excluded.incarnation
    WHERE known.incarnation = excluded.incarnation OR known.state = 'stopped'
        OR known.beat_at < clock_timestamp() - make_interval(secs => p_lost_ms / 1000.0)
    RETURNING is_to_drain INTO v_is_to_drain;
    RETURN v_is_to_drain;
END $$
