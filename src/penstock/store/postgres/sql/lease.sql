-- Lease messages: of each tier its quota and then, if that is not enough, whatever there is in the order of p_order.
-- Quotas, order and turns are decided by the caller. Bounds are numbers below which nothing waits any more.
CREATE OR REPLACE FUNCTION penstock.lease(
    p_queue integer, p_version bigint, p_now bigint, p_lease_ms bigint, p_token bigint, p_want integer,
    p_bytes_max bigint, p_is_small boolean, p_quotas integer[], p_order smallint[], p_bounds bigint[], p_turns bigint[],
    p_are_groups_last boolean, p_is_fifo boolean, p_is_due boolean, p_from bigint, p_deliveries_max integer,
    p_aging_ms bigint[], p_most integer
) RETURNS TABLE (
    lease bigint, count integer, keys bytea, tiers bytea, deliveries bytea, sent_at_ms bytea, sizes bytea, bodies bytea,
    attribute_sizes bytea, attributes bytea, groups bytea[], errors text[], first_leased_ms bytea, homes integer[],
    home_keys bigint[], home_sent_at_ms bigint[], home_deliveries integer[], plain_turns bigint[], firsts bigint[], active smallint[],
    xmin bigint, xmax bigint, next_ms bigint, has_spent boolean
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_lease bigint := nextval('penstock.lease_number');
    v_is_due boolean := p_is_due;
    v_are_marked boolean;
    v_given record;
    v_more record;
BEGIN
    PERFORM penstock.enter(p_queue, p_version);
    plain_turns := p_turns;
    LOOP
        IF v_is_due THEN
            SELECT * INTO v_more FROM penstock.advance(
                p_queue, p_now, p_from, p_deliveries_max, p_aging_ms, p_is_fifo, p_most
            );
            next_ms := v_more.next_ms;
            has_spent := v_more.has_spent;
        END IF;
        v_are_marked := EXISTS (SELECT 1 FROM penstock.marked WHERE queue = p_queue AND state = 1);
        IF p_is_fifo OR v_are_marked THEN
            SELECT * INTO v_given FROM penstock.lease_marked(
                p_queue, v_lease, p_now, p_want, p_bytes_max, p_quotas, p_order, p_bounds, p_turns, p_are_groups_last,
                p_is_fifo
            );
            count := v_given.count; groups := v_given.groups; errors := v_given.errors; homes := v_given.homes;
            home_keys := v_given.home_keys; home_sent_at_ms := v_given.home_sent_at_ms;
            home_deliveries := v_given.home_deliveries; first_leased_ms := v_given.first_leased_ms;
            plain_turns := v_given.plain_turns; firsts := v_given.firsts;
        ELSE
            SELECT * INTO v_given FROM penstock.lease_plain(
                p_queue, v_lease, p_want, p_bytes_max, p_quotas, p_order, p_bounds, p_is_small
            );
            count := v_given.count;
        END IF;
        -- Whoever would leave with nothing looks at the clock first.
        EXIT WHEN count > 0 OR v_is_due;
        v_is_due := true;
    END LOOP;
    active := ARRAY(
        SELECT tier FROM unnest(p_order) AS tier
        WHERE EXISTS (
            SELECT 1 FROM penstock.ready AS r
            WHERE r.queue = p_queue AND r.tier = tier.tier AND r.number >= p_bounds[tier.tier + 1]
        ) OR v_are_marked AND (
            -- Not EXISTS, which is answered by a hash table of everything that waits.
            SELECT true FROM penstock.marked AS m
            WHERE m.queue = p_queue AND m.tier = tier.tier AND m.state = 1 LIMIT 1
        )
    );
    xmin := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
    xmax := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    IF count > 0 THEN
        INSERT INTO penstock.lease (number, queue, token, held, leased_at_ms, lease_ms, until_ms, wakes_at_ms)
        VALUES (v_lease, p_queue, p_token, count, p_now, p_lease_ms, p_now + p_lease_ms, p_now + p_lease_ms);
        lease := v_lease;
        keys := v_given.keys; tiers := v_given.tiers; deliveries := v_given.deliveries;
        sent_at_ms := v_given.sent_at_ms; sizes := v_given.sizes; bodies := v_given.bodies;
        attribute_sizes := v_given.attribute_sizes; attributes := v_given.attributes;
    END IF;
    RETURN NEXT;
END $$
