-- The way of a lease where groups, failures, delays or escalations wait too: tier by tier, in turns.
CREATE OR REPLACE FUNCTION penstock.lease_marked(
    p_queue integer, p_lease bigint, p_now bigint, p_want integer, p_bytes_max bigint, p_quotas integer[],
    p_order smallint[], p_bounds bigint[], p_turns bigint[], p_firsts bigint[],
    p_are_groups_last boolean, p_is_fifo boolean,
    OUT count integer, OUT keys bytea, OUT tiers bytea, OUT deliveries bytea, OUT sent_at_ms bytea, OUT sizes bytea,
    OUT bodies bytea, OUT attribute_sizes bytea, OUT attributes bytea, OUT groups bytea[], OUT errors text[],
    OUT first_leased_ms bytea, OUT homes integer[], OUT home_keys bigint[], OUT home_sent_at_ms bigint[],
    OUT home_deliveries integer[], OUT plain_turns bigint[], OUT firsts bigint[],
    OUT next_turns bigint[]
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_places tid[] := '{}';
    v_are_marked boolean[] := '{}';
    v_tiers smallint[] := '{}';
    v_size bigint := 0;
    v_tier smallint;
    v_quota integer;
    v_taken integer[] := ARRAY[0, 0, 0, 0, 0];
    v_passed integer;
    v_is_full boolean := false;
    v_row record;
    v_noisy bytea[];
    v_held bigint[];
BEGIN
    -- Without waiting groups there are no noisy ones to pass over.
    IF NOT p_is_fifo AND array_remove(p_firsts, NULL) <> '{}' THEN
        SELECT array_agg(n.grp), array_agg(n.held) INTO v_noisy, v_held FROM penstock.noisy(p_queue, p_now) AS n;
    END IF;
    plain_turns := p_turns;
    firsts := ARRAY[NULL, NULL, NULL, NULL, NULL]::bigint[];
    next_turns := firsts;
    FOR v_pass IN 1 .. 2 LOOP
        FOREACH v_tier IN ARRAY CASE WHEN v_pass = 1 THEN ARRAY[0, 1, 2, 3, 4]::smallint[] ELSE p_order END LOOP
            v_quota := CASE WHEN v_pass = 1 THEN p_quotas[v_tier + 1] ELSE p_want - cardinality(v_places) END;
            CONTINUE WHEN v_quota = 0 OR v_is_full;
            -- What the first pass took is locked by ourselves and comes again.
            v_passed := v_taken[v_tier + 1];
            FOR v_row IN
                SELECT * FROM penstock.pick(
                    p_queue, v_tier, v_quota + v_passed, p_bounds[v_tier + 1], p_turns[v_tier + 1], p_firsts[v_tier + 1],
                    v_noisy, v_held
                ) WHERE NOT p_is_fifo
                UNION ALL
                SELECT * FROM penstock.pick_in_line(
                    p_queue, v_tier, v_quota + v_passed, p_bounds[v_tier + 1], p_are_groups_last
                ) WHERE p_is_fifo
            LOOP
                CONTINUE WHEN v_pass = 2 AND v_row.place = ANY (v_places) AND EXISTS (
                    SELECT 1 FROM unnest(v_places, v_are_marked) AS t (place, is_marked)
                    WHERE t.place = v_row.place AND t.is_marked = v_row.is_marked
                );
                EXIT WHEN v_quota = 0;
                v_size := v_size + v_row.size;
                v_is_full := v_size > p_bytes_max AND cardinality(v_places) > 0;
                EXIT WHEN v_is_full;
                v_places := v_places || v_row.place;
                v_are_marked := v_are_marked || v_row.is_marked;
                v_tiers := v_tiers || v_tier;
                v_quota := v_quota - 1;
                v_taken[v_tier + 1] := v_taken[v_tier + 1] + 1;
                IF NOT v_row.is_marked THEN
                    firsts[v_tier + 1] := least(firsts[v_tier + 1], v_row.key >> 3);
                END IF;
                IF NOT v_row.is_plain THEN
                    next_turns[v_tier + 1] := greatest(next_turns[v_tier + 1], v_row.turn + 1);
                ELSIF v_row.turn > plain_turns[v_tier + 1] THEN
                    plain_turns[v_tier + 1] := v_row.turn;
                END IF;
            END LOOP;
        END LOOP;
        EXIT WHEN cardinality(v_places) = p_want OR v_is_full;
    END LOOP;
    SELECT * INTO count, keys, tiers, deliveries, sent_at_ms, sizes, bodies, attribute_sizes, attributes, groups,
        errors, first_leased_ms, homes, home_keys, home_sent_at_ms, home_deliveries
    FROM penstock.hand_out(p_queue, p_lease, p_now, v_places, v_are_marked, v_tiers);
    IF NOT p_is_fifo THEN
        -- The turn that is served next: the first that is left, or the one after all that were taken.
        next_turns := ARRAY(
            SELECT coalesce((
                SELECT m.turn FROM penstock.marked AS m
                WHERE m.queue = p_queue AND m.tier = each.nth - 1 AND m.state = 1 AND m.turn >= p_firsts[each.nth]
                ORDER BY m.turn LIMIT 1
            ), next_turns[each.nth]) FROM generate_series(1, 5) AS each (nth) ORDER BY each.nth
        );
    ELSIF groups IS NOT NULL THEN
        UPDATE penstock.line SET held = line.held + given.count, open_tier = NULL
        FROM (
            SELECT own.place, taken.count
            FROM (SELECT grp, count(*) AS count FROM unnest(groups) AS grp WHERE grp <> '' GROUP BY grp) AS taken
            -- OFFSET keeps it a question for each group, not a join with all there are.
            CROSS JOIN LATERAL (
                SELECT l.ctid AS place FROM penstock.line AS l WHERE l.queue = p_queue AND l.grp = taken.grp OFFSET 0
            ) AS own
        ) AS given
        WHERE line.ctid = given.place;
    END IF;
END $$
