-- The next messages of a tier of a standard queue: the ungrouped by their age, and quiet groups in turns with them. If that
-- is not enough, noisy groups, the one that holds least by then first. p_noisy is NULL where no group is; p_first is the
-- turn that is served now, NULL where no group waits.
CREATE OR REPLACE FUNCTION penstock.pick(
    p_queue integer, p_tier smallint, p_quota integer, p_bound bigint, p_turn bigint, p_first bigint,
    p_noisy bytea[], p_held bigint[]
) RETURNS TABLE (is_marked boolean, place tid, turn bigint, size bigint, is_plain boolean, key bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_spans bigint[];
    v_count integer;
BEGIN
    v_spans := CASE WHEN p_noisy IS NULL THEN ARRAY[p_first, 9223372036854775807]
        ELSE penstock.quiet_spans(p_queue, p_tier, p_quota, p_first, p_noisy) END;
    RETURN QUERY
    SELECT c.is_marked, c.place, c.turn, c.size, c.is_plain, c.key FROM (
        SELECT
            u.is_marked, u.place, u.since_ms, u.key, u.size, true AS is_plain,
            -- Without groups there are no turns.
            CASE WHEN p_first IS NULL THEN 0 ELSE
                greatest(p_turn + 1, p_first) + row_number() OVER (ORDER BY u.since_ms, u.key & 7, u.key) - 1
            END AS turn
        FROM (
            SELECT false AS is_marked, r.* FROM (
                SELECT ctid AS place, sent_at_ms AS since_ms, number << 3 | tier AS key,
                    (octet_length(body) + coalesce(octet_length(attributes), 0))::bigint AS size
                FROM penstock.ready WHERE queue = p_queue AND tier = p_tier AND number >= p_bound
                ORDER BY number LIMIT p_quota FOR UPDATE SKIP LOCKED
            ) AS r
            UNION ALL
            SELECT true, p.* FROM (
                SELECT ctid AS place, since_ms, key,
                    (octet_length(body) + coalesce(octet_length(attributes), 0))::bigint AS size
                FROM penstock.marked WHERE queue = p_queue AND tier = p_tier AND state + 0 = 1 AND grp IS NULL
                ORDER BY since_ms, ordinal LIMIT p_quota FOR UPDATE SKIP LOCKED
            ) AS p
        ) AS u
        UNION ALL
        SELECT true, g.place, g.since_ms, g.key, g.size, false, g.turn
        FROM generate_series(1, cardinality(v_spans), 2) AS n CROSS JOIN LATERAL (
            SELECT ctid AS place, m.since_ms, m.key, m.turn,
                (octet_length(body) + coalesce(octet_length(attributes), 0))::bigint AS size
            FROM penstock.marked AS m
            WHERE m.queue = p_queue AND m.tier = p_tier AND m.state = 1 AND m.turn IS NOT NULL
                AND m.turn BETWEEN v_spans[n] AND v_spans[n + 1] AND (p_noisy IS NULL OR m.grp <> ALL (p_noisy))
            ORDER BY m.turn, m.since_ms, m.ordinal LIMIT p_quota FOR UPDATE SKIP LOCKED
        ) AS g
    ) AS c
    ORDER BY c.turn, c.since_ms, c.key & 7, c.key
    LIMIT p_quota;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count = p_quota OR p_noisy IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT true, g.place, g.turn, g.size, false, g.key
    FROM unnest(p_noisy, p_held) AS t (grp, held) CROSS JOIN LATERAL (
        SELECT ctid AS place, m.key, m.turn, m.since_ms, m.ordinal,
            (octet_length(body) + coalesce(octet_length(attributes), 0))::bigint AS size
        FROM penstock.marked AS m
        -- Not `state = 1`, which would let the index of all turns look as good as that of the group.
        WHERE m.queue = p_queue AND m.grp = t.grp AND m.tier = p_tier AND m.state + 0 = 1 AND m.turn >= p_first
        ORDER BY m.turn, m.since_ms, m.ordinal LIMIT p_quota - v_count FOR UPDATE SKIP LOCKED
    ) AS g
    ORDER BY t.held + row_number() OVER (PARTITION BY t.grp ORDER BY g.turn, g.since_ms, g.ordinal), g.turn, g.since_ms
    LIMIT p_quota - v_count;
END $$
