-- Lease messages: of each tier its quota and then, if that is not enough, whatever there is in the order of p_order.
-- Quotas, order and turns are decided by the caller. Bounds are numbers and turns below which nothing waits any more.
CREATE OR REPLACE FUNCTION penstock.lease(
    p_queue integer, p_version bigint, p_now bigint, p_lease_ms bigint, p_token bigint, p_want integer,
    p_bytes_max bigint, p_is_small boolean, p_quotas integer[], p_order smallint[], p_bounds bigint[], p_turns bigint[],
    p_turn_bounds bigint[], p_are_groups_last boolean, p_is_fifo boolean, p_is_due boolean, p_from bigint, p_deliveries_max integer,
    p_aging_ms bigint[], p_most integer
) RETURNS TABLE (
    lease bigint, count integer, keys bytea, tiers bytea, deliveries bytea, sent_at_ms bytea, sizes bytea, bodies bytea,
    attribute_sizes bytea, attributes bytea, groups bytea[], errors text[], first_leased_ms bytea, homes integer[],
    home_keys bigint[], home_sent_at_ms bigint[], home_deliveries integer[], plain_turns bigint[], firsts bigint[], active smallint[],
    xmin bigint, xmax bigint, next_ms bigint, has_spent boolean, turn_firsts bigint[], turn_floors bigint[], lefts bigint[]
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_lease bigint := nextval('penstock.lease_number');
    -- The tier that gives all, if one does.
    v_tier smallint := array_position(p_quotas, p_want) - 1;
    v_is_due boolean := p_is_due;
    -- What is larger is not packed: a row for each message is not much beside that.
    c_packed_bytes_max CONSTANT integer := 1048576;
    -- A process looks at the clock again after this time in any case: ASK_MS.
    c_ask_ms CONSTANT integer := 1000;
    v_are_marked boolean;
    v_next_turns bigint[];
    v_given record;
    v_more record;
    v_entered bigint;
    -- Of a lease of several messages of one tier: see `span`.
    c_span CONSTANT integer := 10000;
    v_lane smallint;
    v_first bigint;
    v_last bigint;
    v_firsts bigint[];
    v_lasts bigint[];
BEGIN
    plain_turns := p_turns;
    IF v_tier IS NOT NULL AND p_is_small AND NOT p_is_due AND NOT p_is_fifo THEN
        -- The way of a healthy lease: so many of one tier, if the queue is as it is known and all that waits is plain.
        -- A statement more, and even an expression, would cost as much as a message: decision 24.
        v_entered := pg_sequence_last_value(to_regclass('penstock.lane_' || p_queue || '_0'));
        WITH gone AS (
            DELETE FROM penstock.ready AS r USING (
                SELECT ctid AS place FROM penstock.ready
                WHERE queue = p_queue AND tier = v_tier AND number >= p_bounds[v_tier + 1]
                    AND EXISTS (
                        SELECT 1 FROM penstock.queue
                        WHERE number = p_queue AND version = p_version AND deleted_at_ms IS NULL
                    )
                    AND NOT EXISTS (SELECT 1 FROM penstock.marked WHERE queue = p_queue AND state = 1)
                ORDER BY number LIMIT p_want FOR UPDATE SKIP LOCKED
            ) AS chosen
            WHERE r.ctid = chosen.place
            RETURNING r.number, r.sent_at_ms, r.body, r.attributes
        )
        SELECT
            v_lease, count(*)::integer, string_agg(int8send(number << 3 | v_tier), ''),
            decode(repeat('0' || v_tier, count(*)::integer), 'hex'),
            decode(repeat('00000001', count(*)::integer), 'hex'), string_agg(int8send(sent_at_ms), ''),
            string_agg(int4send(octet_length(body)), ''), string_agg(body, ''),
            CASE WHEN count(attributes) > 0 THEN string_agg(int4send(coalesce(octet_length(attributes), 0)), '') END,
            string_agg(attributes, ''),
            pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
            CASE WHEN count(*) > 1 AND max(number) - min(number) < c_span THEN v_tier END, min(number), max(number)
        INTO lease, count, keys, tiers, deliveries, sent_at_ms, sizes, bodies, attribute_sizes, attributes, xmin,
            v_lane, v_first, v_last
        FROM (SELECT * FROM gone ORDER BY number) AS given;
        IF count > 1 AND octet_length(bodies) + coalesce(octet_length(attributes), 0) > p_bytes_max THEN
            -- They are not as small as was expected.
            RAISE EXCEPTION 'too large' USING ERRCODE = 'PS005';
        END IF;
        IF count > 0 THEN
            -- What is left as others see it: with what a lease that runs has taken, and may put back.
            SELECT ARRAY[
                (SELECT number FROM penstock.ready
                 WHERE queue = p_queue AND tier = 0 AND number >= p_bounds[1] ORDER BY number LIMIT 1),
                (SELECT number FROM penstock.ready
                 WHERE queue = p_queue AND tier = 1 AND number >= p_bounds[2] ORDER BY number LIMIT 1),
                (SELECT number FROM penstock.ready
                 WHERE queue = p_queue AND tier = 2 AND number >= p_bounds[3] ORDER BY number LIMIT 1),
                (SELECT number FROM penstock.ready
                 WHERE queue = p_queue AND tier = 3 AND number >= p_bounds[4] ORDER BY number LIMIT 1),
                (SELECT number FROM penstock.ready
                 WHERE queue = p_queue AND tier = 4 AND number >= p_bounds[5] ORDER BY number LIMIT 1)
            ], pg_snapshot_xmax(pg_current_snapshot())::text::bigint INTO lefts, xmax;
            IF count < p_want AND cardinality(array_remove(lefts, NULL)) > (lefts[v_tier + 1] IS NOT NULL)::integer THEN
                SELECT * INTO count, keys, tiers, deliveries, sent_at_ms, sizes, bodies, attribute_sizes, attributes
                FROM penstock.lease_more(
                    p_queue, p_want, p_bytes_max, p_order, p_bounds,
                    count, keys, tiers, deliveries, sent_at_ms, sizes, bodies, attribute_sizes, attributes
                );
                SELECT * INTO v_lane, v_first, v_last, v_firsts, v_lasts FROM penstock.span(keys, tiers);
            END IF;
            INSERT INTO penstock.lease (
                number, queue, token, held, leased_at_ms, lease_ms, until_ms, wakes_at_ms, keys, sent_ats_ms, body_sizes,
                bodies, attribute_sizes, attributes, lane, first_number, last_number, firsts, lasts
            )
            VALUES (
                v_lease, p_queue, p_token, count, p_now, p_lease_ms, p_now + p_lease_ms, p_now + p_lease_ms, keys,
                sent_at_ms, sizes, bodies, attribute_sizes, attributes, v_lane, v_first, v_last, v_firsts, v_lasts
            );
            IF octet_length(bodies) > c_packed_bytes_max THEN
                PERFORM penstock.unpack(ARRAY[v_lease]);
            END IF;
            RETURN NEXT;
            RETURN;
        END IF;
        lease := NULL;
    END IF;
    PERFORM penstock.enter(p_queue, p_version);
    -- Before anything is looked at: who has ended by now is seen.
    xmin := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
    LOOP
        IF v_is_due THEN
            SELECT * INTO v_more FROM penstock.advance(
                p_queue, p_now, p_from, p_deliveries_max, p_aging_ms, p_is_fifo, p_most, p_now + c_ask_ms, p_bounds
            );
            next_ms := v_more.next_ms;
            has_spent := v_more.has_spent;
        END IF;
        IF p_is_fifo THEN
            v_are_marked := EXISTS (SELECT 1 FROM penstock.marked WHERE queue = p_queue AND state = 1);
        ELSE
            turn_firsts := penstock.first_turns(p_queue, p_turn_bounds);
            v_are_marked := array_remove(turn_firsts, NULL) <> '{}'
                OR coalesce((SELECT true FROM penstock.marked
                    WHERE queue = p_queue AND state + 0 = 1 AND grp IS NULL ORDER BY tier LIMIT 1), false);
        END IF;
        IF p_is_fifo AND has_spent THEN
            -- It is buried before anything is taken: what is behind it in its group is next. Then the caller comes again,
            -- and does not ask to look at the clock.
            count := 0;
            EXIT;
        END IF;
        IF p_is_fifo OR v_are_marked THEN
            SELECT * INTO v_given FROM penstock.lease_marked(
                p_queue, v_lease, p_now, p_want, p_bytes_max, p_quotas, p_order, p_bounds, p_turns, turn_firsts,
                p_are_groups_last, p_is_fifo
            );
            count := v_given.count; groups := v_given.groups; errors := v_given.errors; homes := v_given.homes;
            home_keys := v_given.home_keys; home_sent_at_ms := v_given.home_sent_at_ms;
            home_deliveries := v_given.home_deliveries; first_leased_ms := v_given.first_leased_ms;
            plain_turns := v_given.plain_turns; firsts := v_given.firsts;
            v_next_turns := v_given.next_turns;
        ELSE
            SELECT * INTO v_given FROM penstock.lease_plain(
                p_queue, p_want, p_bytes_max, p_quotas, p_order, p_bounds
            );
            count := v_given.count;
        END IF;
        -- An empty lease looks at the clock first.
        EXIT WHEN count > 0 OR v_is_due;
        v_is_due := true;
    END LOOP;
    lefts := ARRAY(
        SELECT (
            SELECT r.number FROM penstock.ready AS r
            WHERE r.queue = p_queue AND r.tier = t.tier AND r.number >= p_bounds[t.tier + 1] ORDER BY r.number LIMIT 1
        ) FROM generate_series(0, 4) AS t (tier) ORDER BY t.tier
    );
    active := ARRAY(
        SELECT tier FROM unnest(p_order) AS tier
        WHERE lefts[tier.tier + 1] IS NOT NULL OR v_are_marked AND coalesce(
            -- Not EXISTS, which is answered by a hash table of everything that waits.
            (SELECT true FROM penstock.marked AS m
             WHERE m.queue = p_queue AND m.tier = tier.tier AND m.state = 1
                AND m.turn >= v_next_turns[tier.tier + 1]
             ORDER BY m.turn LIMIT 1),
            (SELECT true FROM penstock.marked AS m
             WHERE m.queue = p_queue AND m.tier = tier.tier AND m.state + 0 = 1 AND m.grp IS NULL
             ORDER BY m.since_ms LIMIT 1),
            (SELECT true FROM penstock.marked AS m
             WHERE p_is_fifo AND m.queue = p_queue AND m.tier = tier.tier AND m.state = 1 LIMIT 1)
        )
    );
    IF NOT p_is_fifo THEN
        turn_floors := penstock.raise_floors(p_queue, v_next_turns);
    END IF;
    xmax := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    IF count > 0 THEN
        lease := v_lease;
        keys := v_given.keys; tiers := v_given.tiers; deliveries := v_given.deliveries;
        sent_at_ms := v_given.sent_at_ms; sizes := v_given.sizes; bodies := v_given.bodies;
        attribute_sizes := v_given.attribute_sizes; attributes := v_given.attributes;
        IF p_is_fifo OR v_are_marked THEN
            INSERT INTO penstock.lease (number, queue, token, held, leased_at_ms, lease_ms, until_ms, wakes_at_ms)
            VALUES (v_lease, p_queue, p_token, count, p_now, p_lease_ms, p_now + p_lease_ms, p_now + p_lease_ms);
        ELSE
            INSERT INTO penstock.lease (
                number, queue, token, held, leased_at_ms, lease_ms, until_ms, wakes_at_ms, keys, sent_ats_ms, body_sizes,
                bodies, attribute_sizes, attributes, lane, first_number, last_number, firsts, lasts
            )
            SELECT
                v_lease, p_queue, p_token, count, p_now, p_lease_ms, p_now + p_lease_ms, p_now + p_lease_ms, keys,
                sent_at_ms, sizes, bodies, attribute_sizes, attributes, s.lane, s.first_number, s.last_number,
                s.firsts, s.lasts
            FROM penstock.span(keys, tiers) AS s;
            IF octet_length(bodies) > c_packed_bytes_max THEN
                PERFORM penstock.unpack(ARRAY[v_lease]);
            END IF;
        END IF;
    END IF;
    RETURN NEXT;
END $$
