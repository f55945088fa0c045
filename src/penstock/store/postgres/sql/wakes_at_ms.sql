-- When, by the clock alone, something may become leasable next: a lease lapses, or a resting message wakes. Leases that ended
-- before p_from have lapsed.
CREATE OR REPLACE FUNCTION penstock.wakes_at_ms(p_queue integer, p_from bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    RETURN least(
        (SELECT wakes_at_ms FROM penstock.lease WHERE queue = p_queue AND wakes_at_ms > p_from
         ORDER BY wakes_at_ms LIMIT 1),
        (SELECT visible_at_ms FROM penstock.marked WHERE queue = p_queue AND state = 2
         ORDER BY visible_at_ms LIMIT 1)
    );
END $$
