-- Give messages back. p_rests has how long one rests after so many deliveries, at most; p_rolls a share of it for each
-- receipt; p_delay_ms, if it is not NULL, holds for all. Answers as `ack` does.
CREATE OR REPLACE FUNCTION penstock.release(
    p_queue integer, p_version bigint, p_now bigint, p_leases bigint[], p_tokens bigint[], p_rows integer[],
    p_kind smallint, p_delay_ms bigint, p_rests bigint[], p_rolls float8[], p_error text, p_deliveries_max integer,
    p_aging_ms bigint[], p_is_fifo boolean, p_operation bigint
) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    v_good record;
    v_times bigint[];
    v_answer bytea;
BEGIN
    PERFORM penstock.enter(p_queue, p_version);
    PERFORM penstock.lock_leases(p_queue, p_leases);
    SELECT * INTO v_good FROM penstock.held(p_queue, p_now, p_leases, p_tokens, p_rows);
    IF v_good.leases IS NOT NULL THEN
        SELECT array_agg(p_now + coalesce(
            p_delay_ms, floor(p_rests[least(deliveries, cardinality(p_rests))] * p_rolls[nth])::bigint
        ) ORDER BY n) INTO v_times
        FROM unnest(v_good.deliveries, v_good.nths) WITH ORDINALITY AS w (deliveries, nth, n) WHERE p_kind = 1;
        PERFORM penstock.unlease(
            p_queue, p_now, v_good.leases, v_good.rows, p_kind, v_times, p_error, p_deliveries_max, p_aging_ms,
            p_is_fifo
        );
    END IF;
    SELECT coalesce(string_agg(int4send(n::integer), ''), '') INTO v_answer FROM unnest(v_good.nths) AS n;
    IF p_operation IS NOT NULL THEN
        INSERT INTO penstock.operation (id, at_ms, answer) VALUES (p_operation, p_now, v_answer);
    END IF;
    RETURN v_answer;
END $$
