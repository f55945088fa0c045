-- When, by the clock alone, something happens next in a queue; NULL if nothing does, or no more than leases that end later
-- than the caller asks again: behind those that end now may lie the remains of all that were acked since.
CREATE OR REPLACE FUNCTION penstock.next_ms(
    p_queue integer, p_from bigint, p_until bigint, p_bounds bigint[], p_aging_ms bigint[]
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_next bigint;
BEGIN
    v_next := least(
        (SELECT wakes_at_ms FROM penstock.lease
         WHERE queue = p_queue AND wakes_at_ms > p_from AND wakes_at_ms <= p_until ORDER BY wakes_at_ms LIMIT 1),
        (SELECT visible_at_ms FROM penstock.marked WHERE queue = p_queue AND state = 2
         ORDER BY visible_at_ms LIMIT 1),
        (SELECT escalated_until_ms FROM penstock.marked WHERE queue = p_queue AND escalated_until_ms > 0
         ORDER BY escalated_until_ms LIMIT 1)
    );
    FOR v_tier IN 1 .. 4 LOOP
        CONTINUE WHEN p_aging_ms[v_tier + 1] = 0;
        v_next := least(
            v_next,
            p_aging_ms[v_tier + 1] + (SELECT since_ms FROM penstock.marked
                WHERE queue = p_queue AND tier = v_tier AND state = 1 ORDER BY since_ms LIMIT 1),
            p_aging_ms[v_tier + 1] + (SELECT sent_at_ms FROM penstock.ready
                WHERE queue = p_queue AND tier = v_tier AND number >= p_bounds[v_tier + 1] ORDER BY number LIMIT 1)
        );
    END LOOP;
    RETURN v_next;
END $$
