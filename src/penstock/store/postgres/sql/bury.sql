-- Move spent messages to the dead letters, those first that have waited longest; answers with how many.
CREATE OR REPLACE FUNCTION penstock.bury(
    p_queue integer, p_version bigint, p_into integer, p_into_version bigint, p_now bigint, p_most integer,
    p_room bigint, p_is_fifo boolean, p_into_is_fifo boolean, p_history smallint, p_period integer
) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_keys bigint[];
    v_rows penstock.marked[];
    v_most bigint := p_most;
BEGIN
    PERFORM penstock.enter(p_queue, p_version);
    PERFORM penstock.enter(p_into, p_into_version);
    IF p_room IS NOT NULL THEN
        v_most := least(v_most, greatest(0, penstock.lock_room(p_into)));
    END IF;
    IF p_is_fifo THEN
        PERFORM penstock.lock_lines(p_queue, ARRAY(
            SELECT grp FROM penstock.marked WHERE queue = p_queue AND state = 4 ORDER BY visible_at_ms LIMIT v_most
        ));
    END IF;
    SELECT array_agg(key) INTO v_keys FROM (
        SELECT key FROM penstock.marked WHERE queue = p_queue AND state = 4
        ORDER BY visible_at_ms LIMIT v_most FOR UPDATE SKIP LOCKED
    ) AS spent;
    IF v_keys IS NULL THEN
        RETURN 0;
    END IF;
    SELECT array_agg(gone::penstock.marked ORDER BY gone.visible_at_ms) INTO v_rows
    FROM penstock.settle_marked(p_queue, p_now, v_keys, 2::smallint, p_is_fifo, p_history, p_period) AS gone;
    PERFORM penstock.arrive(p_into, p_now, p_into_is_fifo, v_rows);
    IF p_room IS NOT NULL THEN
        PERFORM penstock.spread_room(p_into, -cardinality(v_rows));
    END IF;
    RETURN cardinality(v_rows);
END $$
