-- The leases of several messages of one tier in which the first p_most messages from a number on are, and perhaps some more.
CREATE OR REPLACE FUNCTION penstock.leases_between(
    p_queue integer, p_lane smallint, p_first bigint, p_end bigint, p_most integer
) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    -- As far as a lease may reach: see `span`.
    c_span CONSTANT integer := 10000;
    v_last bigint;
BEGIN
    -- In the order of their last numbers, until those that end here have so many; of one that begins before, one counts.
    SELECT last_number INTO v_last FROM (
        SELECT last_number,
            sum(CASE WHEN first_number >= p_first THEN held ELSE 1 END) OVER (ROWS UNBOUNDED PRECEDING) AS total
        FROM (
            SELECT last_number, first_number, held FROM penstock.lease
            WHERE queue + 0 = p_queue AND lane = p_lane AND last_number >= p_first
            ORDER BY last_number, first_number LIMIT p_most
        ) AS next
    ) AS summed
    WHERE total >= p_most LIMIT 1;
    v_last := least(v_last, p_end - 1);
    RETURN QUERY
    SELECT number FROM penstock.lease
    WHERE queue + 0 = p_queue AND lane = p_lane AND last_number >= p_first AND last_number < v_last + c_span
        AND first_number <= v_last;
END $$
