-- Wait for the transaction that holds the first lease that is due, but not for long: it may be a caller's.
CREATE OR REPLACE FUNCTION penstock.wait_for_lapse(p_queue integer, p_now bigint, p_from bigint, p_wait_ms integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', p_wait_ms::text, true);
    PERFORM 1 FROM penstock.lease
    WHERE queue = p_queue AND wakes_at_ms <= p_now AND wakes_at_ms > p_from ORDER BY wakes_at_ms LIMIT 1 FOR SHARE;
EXCEPTION WHEN lock_not_available THEN
    NULL;
END $$
