-- Which receipts are good: their lease is there, their token fits, the message is in it and its time is not over.
-- The caller has locked the leases.
CREATE OR REPLACE FUNCTION penstock.held(
    p_queue integer, p_now bigint, p_leases bigint[], p_tokens bigint[], p_rows integer[],
    OUT leases bigint[], OUT rows integer[], OUT deliveries integer[], OUT nths bigint[]
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT array_agg(w.lease ORDER BY w.n), array_agg(w.row ORDER BY w.n), array_agg(l.deliveries ORDER BY w.n),
        array_agg(w.n ORDER BY w.n)
    INTO leases, rows, deliveries, nths
    FROM unnest(p_leases, p_tokens, p_rows) WITH ORDINALITY AS w (lease, token, row, n)
    -- Found by their numbers, and not by their queue: see `ack_lease`.
    JOIN penstock.lease AS e ON e.number = w.lease AND e.queue + 0 = p_queue AND e.token = w.token
    JOIN penstock.leased AS l ON l.lease = w.lease AND l.row = w.row
    WHERE coalesce(l.until_ms, e.until_ms) > p_now;
END $$
