-- The leases of several messages, of one tier or of more, that hold the first p_most messages from a number on, and perhaps some more.
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
    -- Of a lease of several tiers one message counts, that with its last number here.
    SELECT least(max(last), p_end - 1) INTO v_last FROM (
        (
            SELECT lasts[1] AS last FROM penstock.lease
            WHERE p_lane = 0 AND queue + 0 = p_queue AND lasts[1] >= p_first ORDER BY queue + 0, lasts[1] LIMIT p_most
        )
        UNION ALL
        (
            SELECT lasts[2] AS last FROM penstock.lease
            WHERE p_lane = 1 AND queue + 0 = p_queue AND lasts[2] >= p_first ORDER BY queue + 0, lasts[2] LIMIT p_most
        )
        UNION ALL
        (
            SELECT lasts[3] AS last FROM penstock.lease
            WHERE p_lane = 2 AND queue + 0 = p_queue AND lasts[3] >= p_first ORDER BY queue + 0, lasts[3] LIMIT p_most
        )
        UNION ALL
        (
            SELECT lasts[4] AS last FROM penstock.lease
            WHERE p_lane = 3 AND queue + 0 = p_queue AND lasts[4] >= p_first ORDER BY queue + 0, lasts[4] LIMIT p_most
        )
        UNION ALL
        (
            SELECT lasts[5] AS last FROM penstock.lease
            WHERE p_lane = 4 AND queue + 0 = p_queue AND lasts[5] >= p_first ORDER BY queue + 0, lasts[5] LIMIT p_most
        )
    ) AS next HAVING count(*) >= p_most;
    v_last := coalesce(v_last, p_end - 1);
    RETURN QUERY
    SELECT number FROM penstock.lease
    WHERE p_lane = 0 AND queue + 0 = p_queue AND lasts[1] >= p_first AND lasts[1] < v_last + c_span
        AND firsts[1] <= v_last
    UNION ALL
    SELECT number FROM penstock.lease
    WHERE p_lane = 1 AND queue + 0 = p_queue AND lasts[2] >= p_first AND lasts[2] < v_last + c_span
        AND firsts[2] <= v_last
    UNION ALL
    SELECT number FROM penstock.lease
    WHERE p_lane = 2 AND queue + 0 = p_queue AND lasts[3] >= p_first AND lasts[3] < v_last + c_span
        AND firsts[3] <= v_last
    UNION ALL
    SELECT number FROM penstock.lease
    WHERE p_lane = 3 AND queue + 0 = p_queue AND lasts[4] >= p_first AND lasts[4] < v_last + c_span
        AND firsts[4] <= v_last
    UNION ALL
    SELECT number FROM penstock.lease
    WHERE p_lane = 4 AND queue + 0 = p_queue AND lasts[5] >= p_first AND lasts[5] < v_last + c_span
        AND firsts[5] <= v_last;
END $$
