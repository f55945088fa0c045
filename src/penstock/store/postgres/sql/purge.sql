-- Settle every message of a queue, leased or not, and answer with how many.
CREATE OR REPLACE FUNCTION penstock.purge(
    p_queue integer, p_version bigint, p_now bigint, p_history smallint, p_period integer
) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM penstock.enter_alone(p_queue, p_version);
    RETURN penstock.settle_all(p_queue, p_now, 4::smallint, p_history, p_period);
END $$
