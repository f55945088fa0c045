-- Move waiting and resting messages to a more urgent tier, or to a less urgent one. Answers with those that moved, with those
-- that have no way to go, and with those that are there, moved or not.
CREATE OR REPLACE FUNCTION penstock.escalate(
    p_queue integer, p_version bigint, p_now bigint, p_ids text[], p_homes integer[], p_home_keys bigint[],
    p_tier smallint, p_until_ms bigint, p_actor text, p_reason text, p_is_fifo boolean, p_kept_max integer,
    p_lowers boolean, OUT moved text[], OUT unchanged text[], OUT others text[]
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_groups bytea[];
BEGIN
    PERFORM penstock.enter(p_queue, p_version);
    -- Messages that nothing had happened to have now.
    WITH gone AS (
        DELETE FROM penstock.ready WHERE ctid = ANY (ARRAY(
            -- OFFSET, here and below, keeps it a look for each id: see `send`.
            SELECT r.place FROM unnest(p_homes, p_home_keys) AS w (home, key) CROSS JOIN LATERAL (
                SELECT ctid AS place FROM penstock.ready
                WHERE queue = p_queue AND tier = (w.key & 7)::smallint AND number = w.key >> 3
                    AND CASE WHEN p_lowers THEN tier < p_tier ELSE tier > p_tier END OFFSET 0
            ) AS r
            WHERE w.home = p_queue
        ))
        RETURNING *
    )
    INSERT INTO penstock.marked (
        queue, key, tier, state, since_ms, ordinal, visible_at_ms, sent_at_ms, deliveries, deliveries_max,
        first_leased_ms, last_leased_ms, served_tier, body, attributes
    )
    SELECT queue, number << 3 | tier, tier, 1, sent_at_ms, nextval('penstock.ordinal'), 0, sent_at_ms, 0, 0, 0, 0, tier,
        body, attributes
    FROM gone ORDER BY tier, number;
    IF p_is_fifo THEN
        SELECT array_agg(DISTINCT m.grp) INTO v_groups
        FROM unnest(p_homes, p_home_keys) AS w (home, key) CROSS JOIN LATERAL (
            SELECT grp FROM penstock.marked WHERE queue = p_queue AND key = w.key AND w.home = p_queue AND home IS NULL
            UNION ALL
            SELECT grp FROM penstock.marked WHERE home = w.home AND home_key = w.key AND queue + 0 = p_queue
        ) AS m
        WHERE m.grp IS NOT NULL;
        PERFORM penstock.lock_lines(p_queue, v_groups);
    END IF;
    WITH wanted AS MATERIALIZED (
        SELECT DISTINCT id, home, key FROM unnest(p_ids, p_homes, p_home_keys) AS w (id, home, key)
    ), found AS MATERIALIZED (
        -- Locked, so that each is still at its place when it is changed.
        SELECT w.id, m.* FROM wanted AS w CROSS JOIN LATERAL (
            SELECT ctid AS place, state, tier, own_tier, escalated_until_ms FROM penstock.marked
            WHERE queue = p_queue AND key = w.key AND w.home = p_queue AND home IS NULL LIMIT 1 FOR UPDATE
        ) AS m
        UNION ALL
        SELECT w.id, m.* FROM wanted AS w CROSS JOIN LATERAL (
            SELECT ctid AS place, state, tier, own_tier, escalated_until_ms FROM penstock.marked
            WHERE home = w.home AND home_key = w.key AND queue + 0 = p_queue LIMIT 1 FOR UPDATE
        ) AS m
    ), judged AS MATERIALIZED (
        SELECT id, place, CASE
            WHEN tier = p_tier THEN own_tier IS NOT NULL AND coalesce(escalated_until_ms, 0) <> p_until_ms
            WHEN p_lowers THEN tier < p_tier ELSE tier > p_tier END AS moves
        FROM found WHERE state IN (1, 2)
    ), raised AS (
        UPDATE penstock.marked AS m SET
            own_tier = coalesce(m.own_tier, m.tier), tier = p_tier, since_ms = p_now, escalated_until_ms = p_until_ms,
            -- A volatile function sees what this statement has moved so far: those of a group get one turn after the other.
            turn = CASE WHEN m.turn IS NOT NULL AND m.state = 1
                THEN penstock.next_turn(p_queue, p_tier, m.grp, p_now) ELSE m.turn END
        FROM judged AS f WHERE f.moves AND m.ctid = f.place AND m.state IN (1, 2)
        RETURNING f.id
    ), stayed AS (
        SELECT id FROM judged WHERE NOT moves
        UNION ALL
        SELECT w.id FROM wanted AS w CROSS JOIN LATERAL (
            SELECT tier FROM penstock.ready
            WHERE queue = p_queue AND tier = (w.key & 7)::smallint AND number = w.key >> 3 OFFSET 0
        ) AS r
        WHERE w.home = p_queue AND NOT CASE WHEN p_lowers THEN r.tier < p_tier ELSE r.tier > p_tier END
    )
    SELECT (SELECT array_agg(id) FROM raised), (SELECT array_agg(id) FROM stayed) INTO moved, unchanged;
    -- What was leased a statement ago may wait by now: it was there all the time.
    SELECT array_agg(w.id) INTO others
    FROM unnest(p_ids, p_homes, p_home_keys) AS w (id, home, key)
    -- What has moved or stays needs no look through the leases.
    WHERE w.id <> ALL (coalesce(moved, '{}')) AND w.id <> ALL (coalesce(unchanged, '{}')) AND (EXISTS (
        SELECT 1 FROM penstock.leases_of(p_queue, w.home, w.key) AS holder (number)
        CROSS JOIN LATERAL penstock.in_lease(holder.number, false) AS l
        WHERE coalesce(l.home, p_queue) = w.home AND coalesce(l.home_key, l.key) = w.key
    ) OR EXISTS (
        SELECT 1 FROM penstock.marked AS m
        WHERE m.queue = p_queue AND m.key = w.key AND w.home = p_queue AND m.home IS NULL
    ) OR EXISTS (
        SELECT 1 FROM penstock.marked AS m
        WHERE m.home = w.home AND m.home_key = w.key AND m.queue = p_queue
    ));
    IF p_is_fifo THEN
        PERFORM penstock.refresh_lines(p_queue, v_groups);
    END IF;
    IF moved IS NOT NULL THEN
        INSERT INTO penstock.escalation (queue, at_ms, actor, reason, tier, until_ms, ids)
        VALUES (p_queue, p_now, p_actor, p_reason, p_tier, p_until_ms, moved);
        DELETE FROM penstock.escalation WHERE queue = p_queue AND number <= (
            SELECT number FROM penstock.escalation WHERE queue = p_queue ORDER BY number DESC OFFSET p_kept_max LIMIT 1
        );
    END IF;
END $$
