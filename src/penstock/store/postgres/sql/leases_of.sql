-- The leases that hold a message, of which there is one at most; of several messages in a pack, a lease may be wrong.
-- Each condition fits one index alone: in a table that was never counted, all leases of the queue look as good.
CREATE OR REPLACE FUNCTION penstock.leases_of(p_queue integer, p_home integer, p_key bigint) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    -- As far as a lease may reach: see `span`.
    c_span CONSTANT integer := 10000;
BEGIN
    RETURN QUERY SELECT lease FROM penstock.leased WHERE home = p_home AND home_key = p_key AND queue + 0 = p_queue;
    IF p_home = p_queue THEN
        RETURN QUERY SELECT lease FROM penstock.leased WHERE queue = p_queue AND key = p_key AND home IS NULL;
        RETURN QUERY
        SELECT number FROM penstock.lease
        WHERE int4send(queue) || keys = int4send(p_queue) || int8send(p_key) AND octet_length(keys) = 8;
        RETURN QUERY
        SELECT number FROM penstock.lease
        WHERE queue + 0 = p_queue AND lane = (p_key & 7)::smallint AND last_number >= p_key >> 3
            AND last_number < (p_key >> 3) + c_span AND first_number <= p_key >> 3
            AND position(int8send(p_key) IN keys) > 0;
        RETURN QUERY
        SELECT number FROM penstock.lease
        WHERE p_key & 7 = 0 AND queue + 0 = p_queue AND lasts[1] >= p_key >> 3 AND lasts[1] < (p_key >> 3) + c_span
            AND firsts[1] <= p_key >> 3 AND position(int8send(p_key) IN keys) > 0
        UNION ALL
        SELECT number FROM penstock.lease
        WHERE p_key & 7 = 1 AND queue + 0 = p_queue AND lasts[2] >= p_key >> 3 AND lasts[2] < (p_key >> 3) + c_span
            AND firsts[2] <= p_key >> 3 AND position(int8send(p_key) IN keys) > 0
        UNION ALL
        SELECT number FROM penstock.lease
        WHERE p_key & 7 = 2 AND queue + 0 = p_queue AND lasts[3] >= p_key >> 3 AND lasts[3] < (p_key >> 3) + c_span
            AND firsts[3] <= p_key >> 3 AND position(int8send(p_key) IN keys) > 0
        UNION ALL
        SELECT number FROM penstock.lease
        WHERE p_key & 7 = 3 AND queue + 0 = p_queue AND lasts[4] >= p_key >> 3 AND lasts[4] < (p_key >> 3) + c_span
            AND firsts[4] <= p_key >> 3 AND position(int8send(p_key) IN keys) > 0
        UNION ALL
        SELECT number FROM penstock.lease
        WHERE p_key & 7 = 4 AND queue + 0 = p_queue AND lasts[5] >= p_key >> 3 AND lasts[5] < (p_key >> 3) + c_span
            AND firsts[5] <= p_key >> 3 AND position(int8send(p_key) IN keys) > 0;
        RETURN QUERY
        SELECT number FROM penstock.lease
        WHERE queue + 0 = p_queue AND octet_length(keys) > 8 AND lane IS NULL AND lasts IS NULL
            AND position(int8send(p_key) IN keys) > 0;
    END IF;
END $$
