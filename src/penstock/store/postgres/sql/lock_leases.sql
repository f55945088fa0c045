-- Lock leases in the order of their numbers, if they are there: their messages do not change until the transaction ends.
-- Each message has a row of its own then.
CREATE OR REPLACE FUNCTION penstock.lock_leases(p_queue integer, p_leases bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_packed bigint[];
BEGIN
    -- No join with what was named: its sort would be all that the planner sees, and the whole table looks as good.
    SELECT array_agg(number) FILTER (WHERE is_packed) INTO v_packed FROM (
        SELECT number, keys IS NOT NULL AS is_packed FROM penstock.lease
        WHERE number = ANY (p_leases) AND queue + 0 = p_queue ORDER BY number FOR UPDATE
    ) AS locked;
    IF v_packed IS NOT NULL THEN
        PERFORM penstock.unpack(v_packed);
    END IF;
END $$
