-- Between which turns to look for messages of quiet groups, as pairs. Noisy groups that are passed over may have very
-- many messages, so only a stretch at the front is walked; if quiet groups have little there, a second stretch begins
-- where the first of them goes on.
CREATE OR REPLACE FUNCTION penstock.quiet_spans(
    p_queue integer, p_tier smallint, p_quota integer, p_first bigint, p_noisy bytea[]
) RETURNS bigint[]
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c_walk constant integer := 1000;
    c_groups constant integer := 200;
    v_end bigint;
    v_next bigint;
    v_last bigint;
    v_count bigint;
    v_quiet bigint;
BEGIN
    -- Written as a walk along the index of turns, since others look as good to a planner that has not counted.
    SELECT count(*), count(*) FILTER (WHERE grp <> ALL (p_noisy)), max(turn) INTO v_count, v_quiet, v_end FROM (
        SELECT grp, turn FROM penstock.marked
        WHERE queue = p_queue AND tier = p_tier AND state = 1 AND turn >= p_first
        ORDER BY turn LIMIT p_quota + c_walk
    ) AS front;
    IF v_count < p_quota + c_walk THEN
        RETURN ARRAY[p_first, 9223372036854775807];
    END IF;
    IF v_quiet >= p_quota THEN
        RETURN ARRAY[p_first, v_end];
    END IF;
    WITH RECURSIVE other AS (
        (SELECT grp FROM penstock.marked WHERE queue = p_queue AND turn IS NOT NULL ORDER BY grp LIMIT 1)
        UNION ALL
        SELECT (
            SELECT m.grp FROM penstock.marked AS m
            WHERE m.queue = p_queue AND m.turn IS NOT NULL AND m.grp > other.grp ORDER BY m.grp LIMIT 1
        ) FROM other WHERE other.grp IS NOT NULL
    ), sample AS (
        SELECT grp FROM other LIMIT c_groups + cardinality(p_noisy)
    )
    SELECT min(front.turn) INTO v_next FROM sample CROSS JOIN LATERAL (
        SELECT m.turn FROM penstock.marked AS m
        WHERE m.queue = p_queue AND m.grp = sample.grp AND m.tier = p_tier AND m.turn > v_end AND m.state + 0 = 1
        ORDER BY m.turn LIMIT 1
    ) AS front
    WHERE sample.grp <> ALL (p_noisy);
    IF v_next IS NULL THEN
        RETURN ARRAY[p_first, v_end];
    END IF;
    SELECT turn INTO v_last FROM penstock.marked
    WHERE queue = p_queue AND tier = p_tier AND state = 1 AND turn >= v_next
    ORDER BY turn OFFSET p_quota + c_walk LIMIT 1;
    RETURN ARRAY[p_first, v_end, v_next, coalesce(v_last, 9223372036854775807)];
END $$
