-- Messages of any kind. A column that is NULL has nothing in any row. Answers with a key for each draft, 8 bytes each:
-- those of p_answers, counted from 1, where a batch repeats itself and the repeats were left out.
CREATE OR REPLACE FUNCTION penstock.send(
    p_queue integer, p_version bigint, p_now bigint, p_tiers smallint[], p_bodies bytea[], p_attributes bytea[],
    p_groups bytea[], p_visible_at_ms bigint[], p_dedup_ids bytea[], p_deliveries_max integer[], p_answers integer[],
    p_is_fifo boolean, p_dedup_until_ms bigint, p_room bigint,
    p_sender bigint, p_epoch bigint, p_sequence bigint, p_sends_max integer, p_operation bigint
) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    v_lanes oid[] := penstock.enter(p_queue, p_version);
    -- NULL where the id is free: then the window is that of the message's life.
    v_is_live boolean := p_dedup_until_ms IS NULL;
    v_known bigint[];
    v_keys bigint[];
    v_answer bytea;
    v_taken bigint;
    v_fresh bigint := cardinality(p_bodies);
    v_firsts bigint[];
BEGIN
    PERFORM pg_current_xact_id();
    IF p_sender IS NOT NULL THEN
        v_answer := penstock.find_sent(p_queue, p_now, p_sender, p_epoch, p_sequence);
        IF v_answer IS NOT NULL THEN
            RETURN v_answer;
        END IF;
    END IF;
    IF p_is_fifo AND p_groups IS NOT NULL THEN
        PERFORM penstock.lock_lines(p_queue, p_groups);
    END IF;
    IF p_dedup_ids IS NOT NULL THEN
        SELECT array_agg(known.key ORDER BY draft.n), count(*) FILTER (WHERE known.key IS NULL)
        INTO v_known, v_fresh
        FROM unnest(p_dedup_ids) WITH ORDINALITY AS draft (id, n)
        -- OFFSET keeps it a look for each id: in a table that was never counted, all ids of the queue look as good.
        LEFT JOIN LATERAL (
            SELECT key FROM penstock.dedup
            WHERE queue = p_queue AND id = draft.id AND (until_ms IS NULL OR until_ms > p_now) OFFSET 0
        ) AS known ON true;
    END IF;
    IF p_room IS NOT NULL AND v_fresh > 0 THEN
        PERFORM penstock.take_room(p_queue, p_room, v_fresh);
    END IF;
    SELECT array_agg(key) INTO v_keys FROM (
        SELECT coalesce(v_known[n], nextval(v_lanes[tier + 1]) << 3 | tier) AS key
        FROM unnest(p_tiers) WITH ORDINALITY AS draft (tier, n)
    ) AS numbered;
    IF p_groups IS NOT NULL AND NOT p_is_fifo THEN
        v_firsts := ARRAY(
            SELECT CASE WHEN tier = ANY (p_tiers) THEN penstock.first_turn(p_queue, tier::smallint, p_now) END
            FROM generate_series(0, 4) AS tier ORDER BY tier
        );
    END IF;
    WITH draft AS MATERIALIZED (
        SELECT
            d.*,
            coalesce(d.visible_at_ms, 0) > p_now AS is_resting,
            d.grp IS NOT NULL OR (v_is_live AND d.dedup_id IS NOT NULL)
                OR coalesce(d.deliveries_max, 0) > 0 OR coalesce(d.visible_at_ms, 0) > p_now AS is_marked
        FROM unnest(
            v_keys, p_tiers, p_bodies, p_attributes, p_groups, p_visible_at_ms, p_dedup_ids, p_deliveries_max
        ) WITH ORDINALITY AS d (key, tier, body, attributes, grp, visible_at_ms, dedup_id, deliveries_max, n)
        WHERE v_known[d.n] IS NULL
    ), added AS (
        INSERT INTO penstock.ready (queue, tier, number, sent_at_ms, body, attributes)
        SELECT p_queue, tier, key >> 3, p_now, body, attributes FROM draft WHERE NOT is_marked
    ), ranked AS (
        SELECT d.*, row_number() OVER (PARTITION BY tier, grp, is_resting ORDER BY n) AS nth
        FROM draft AS d WHERE is_marked
    ), turned AS (
        -- Asked once for each group. Not a join with the groups, which without an index is one of all with all.
        SELECT d.*, max(
            CASE WHEN nth = 1 AND grp IS NOT NULL AND NOT p_is_fifo AND NOT is_resting
                THEN penstock.turn_after(p_queue, tier, grp, v_firsts[tier + 1]) END
        ) OVER (PARTITION BY tier, grp, is_resting) AS turn
        FROM ranked AS d
    )
    INSERT INTO penstock.marked (
        queue, key, tier, state, since_ms, ordinal, turn, visible_at_ms, sent_at_ms, deliveries, deliveries_max,
        first_leased_ms, last_leased_ms, served_tier, grp, dedup_id, body, attributes
    )
    SELECT
        p_queue, d.key, d.tier, CASE WHEN d.is_resting THEN 2 ELSE 1 END, p_now, nextval('penstock.ordinal'),
        CASE
            WHEN d.grp IS NULL OR p_is_fifo THEN NULL
            WHEN d.is_resting THEN 0
            ELSE d.turn + d.nth - 1
        END,
        coalesce(d.visible_at_ms, 0), p_now, 0, coalesce(d.deliveries_max, 0),
        0, 0, d.tier, d.grp, CASE WHEN v_is_live THEN d.dedup_id END, d.body, d.attributes
    FROM turned AS d
    ORDER BY d.n;
    IF p_dedup_ids IS NOT NULL AND v_fresh > 0 THEN
        INSERT INTO penstock.dedup AS known (queue, id, key, until_ms)
        SELECT p_queue, id, v_keys[n], p_dedup_until_ms
        FROM unnest(p_dedup_ids) WITH ORDINALITY AS draft (id, n)
        WHERE id IS NOT NULL AND v_known[n] IS NULL
        ORDER BY id
        ON CONFLICT (queue, id) DO UPDATE SET key = excluded.key, until_ms = excluded.until_ms
        WHERE known.until_ms <= p_now;
        GET DIAGNOSTICS v_taken = ROW_COUNT;
        IF v_taken < (SELECT count(*) FROM unnest(p_dedup_ids) WITH ORDINALITY AS draft (id, n)
                      WHERE id IS NOT NULL AND v_known[n] IS NULL) THEN
            -- Another sent one of these ids a moment ago: looked at again, it is known.
            RAISE EXCEPTION 'an id was taken meanwhile' USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    IF p_is_fifo AND p_groups IS NOT NULL THEN
        PERFORM penstock.refresh_lines(p_queue, p_groups);
    END IF;
    SELECT string_agg(int8send(key), '' ORDER BY n) INTO v_answer
    FROM unnest(CASE WHEN p_answers IS NULL THEN v_keys ELSE ARRAY(
        SELECT v_keys[row] FROM unnest(p_answers) WITH ORDINALITY AS a (row, n) ORDER BY n
    ) END) WITH ORDINALITY AS k (key, n);
    IF p_sender IS NOT NULL THEN
        PERFORM penstock.remember_sent(p_queue, p_sender, p_sequence, v_answer, p_sends_max);
    END IF;
    IF p_operation IS NOT NULL THEN
        INSERT INTO penstock.operation (id, at_ms, answer) VALUES (p_operation, p_now, v_answer);
    END IF;
    RETURN v_answer;
END $$
