-- Remove the periods in which every row is below an offset and was settled before a time, except the one that is written
-- to; answers what is kept. They are dropped, or only detached: then they are tables outside the history.
-- Runs with the rights of the owner, to whom the tables belong, for every role that may delete rows of the history.
CREATE OR REPLACE FUNCTION penstock.trim_history(p_before bigint, p_before_ms bigint, p_drops boolean) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_moment penstock.moment;
    v_period integer;
    v_last bigint;
    v_last_ms bigint;
BEGIN
    IF NOT has_table_privilege(session_user, 'penstock.history', 'DELETE') THEN
        RAISE EXCEPTION '% may not let go of history', session_user USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- Every settlement queues up behind a waiter for this table, so the wait is short, and is repeated a little later.
    PERFORM set_config('lock_timeout', '500ms', true);
    SELECT * INTO v_moment FROM penstock.moment FOR UPDATE;
    FOR v_period IN
        SELECT substring(c.relname FROM 'history_([0-9]+)$')::integer
        FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'penstock.history'::regclass ORDER BY 1
    LOOP
        -- A server that has not heard of the newest period yet writes to the one before.
        CONTINUE WHEN v_period >= v_moment.period - 1;
        -- Of the last message: its row may be a pack.
        EXECUTE format(
            'SELECT at_offset + coalesce(packed, 1) - 1, settled_at_ms FROM penstock.history_%s '
            'ORDER BY at_offset DESC LIMIT 1', v_period
        ) INTO v_last, v_last_ms;
        EXIT WHEN v_last >= p_before OR v_last_ms >= p_before_ms;
        EXECUTE format('ALTER TABLE penstock.history DETACH PARTITION penstock.history_%s', v_period);
        IF p_drops THEN
            EXECUTE format('DROP TABLE penstock.history_%s', v_period);
        END IF;
        v_moment.first_kept_offset := greatest(v_moment.first_kept_offset, ((v_last >> 24) + 1) << 24);
    END LOOP;
    UPDATE penstock.moment SET first_kept_offset = v_moment.first_kept_offset;
    RETURN v_moment.first_kept_offset;
END $$
