-- Replace the settings of a queue, and revive what is not spent by the new ones.
CREATE OR REPLACE FUNCTION penstock.change_queue(
    p_queue integer, p_version bigint, p_settings text, p_grave text, p_deliveries_max integer, p_is_fifo boolean,
    p_now bigint
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_groups bytea[];
BEGIN
    PERFORM penstock.enter_alone(p_queue, p_version);
    UPDATE penstock.queue SET settings = p_settings, grave = p_grave, version = nextval('penstock.queue_version')
    WHERE number = p_queue;
    PERFORM penstock.size_room(p_queue, coalesce((p_settings::json ->> 'size_max')::bigint, 0));
    WITH revived AS (
        UPDATE penstock.marked SET state = 1, since_ms = p_now,
            turn = CASE WHEN turn IS NOT NULL THEN greatest(turn, penstock.first_turn(p_queue, tier, NULL)) END
        WHERE queue = p_queue AND state = 4
            AND NOT (p_deliveries_max > 0 AND deliveries >= coalesce(nullif(deliveries_max, 0), p_deliveries_max))
        RETURNING grp
    )
    SELECT array_agg(grp) INTO v_groups FROM revived;
    IF p_is_fifo THEN
        PERFORM penstock.refresh_lines(p_queue, v_groups);
    END IF;
END $$
