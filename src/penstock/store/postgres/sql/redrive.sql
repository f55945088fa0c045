-- Move dead letters, named by their keys here, to another queue; answers with the keys of those that went.
CREATE OR REPLACE FUNCTION penstock.redrive(
    p_queue integer, p_version bigint, p_into integer, p_into_version bigint, p_now bigint, p_keys bigint[],
    p_room bigint, p_is_fifo boolean, p_into_is_fifo boolean, p_history smallint, p_period integer
) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_keys bigint[];
    v_rows penstock.marked[];
    v_most bigint := cardinality(p_keys);
BEGIN
    PERFORM penstock.enter(p_queue, p_version);
    PERFORM penstock.enter(p_into, p_into_version);
    IF p_room IS NOT NULL THEN
        v_most := least(v_most, greatest(0, penstock.lock_room(p_into)));
    END IF;
    IF p_is_fifo THEN
        PERFORM penstock.lock_lines(p_queue, ARRAY(
            SELECT m.grp FROM unnest(p_keys) AS w (key) CROSS JOIN LATERAL (
                SELECT grp FROM penstock.marked WHERE queue = p_queue AND key = w.key OFFSET 0
            ) AS m
        ));
    END IF;
    SELECT array_agg(key) INTO v_keys FROM (
        -- One after the other in the order they were named.
        SELECT m.key FROM unnest(p_keys) AS w (key) CROSS JOIN LATERAL (
            SELECT key FROM penstock.marked
            WHERE queue = p_queue AND key = w.key AND state IN (1, 2) AND home IS NOT NULL
            LIMIT 1 FOR UPDATE SKIP LOCKED
        ) AS m
        LIMIT v_most
    ) AS dead;
    IF v_keys IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT array_agg(gone::penstock.marked ORDER BY gone.ordinal) INTO v_rows
    FROM penstock.settle_marked(p_queue, p_now, v_keys, 5::smallint, p_is_fifo, p_history, p_period) AS gone;
    PERFORM penstock.arrive(p_into, p_now, p_into_is_fifo, v_rows);
    IF p_room IS NOT NULL THEN
        PERFORM penstock.spread_room(p_into, -cardinality(v_rows));
    END IF;
    RETURN v_keys;
END $$
