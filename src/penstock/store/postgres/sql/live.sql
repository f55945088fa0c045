-- How many messages a queue holds; of those that are not leased, no more are counted than asked for.
CREATE OR REPLACE FUNCTION penstock.live(p_queue integer, p_most bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT count(*) FROM (SELECT 1 FROM penstock.ready WHERE queue = p_queue LIMIT p_most) AS message)
        + (SELECT count(*) FROM (SELECT 1 FROM penstock.marked WHERE queue = p_queue LIMIT p_most) AS message)
        + (SELECT coalesce(sum(held), 0)::bigint FROM penstock.lease WHERE queue = p_queue);
END $$
