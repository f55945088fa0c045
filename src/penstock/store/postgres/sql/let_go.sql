-- Messages of groups of a standard queue are held no longer: each was from when it was leased until it was let go. What a group
-- holds is counted, and that time (core/queue/message_groups.py), unless the queue's setting turns that off. Called when they are where they go.
CREATE OR REPLACE FUNCTION penstock.let_go(
    p_queue integer, p_now bigint, p_groups bytea[], p_leased_at_ms bigint[], p_left_at_ms bigint[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_percent bigint;
    v_minute bigint := p_now / 60000;
    v_most double precision;
    v_floors bigint[];
BEGIN
    PERFORM penstock.count_held(p_queue, p_now, p_groups, -1);
    SELECT coalesce((settings::json ->> 'noisy_time_percent')::bigint, 10) INTO v_percent
    FROM penstock.queue WHERE number = p_queue;
    IF v_percent = 100 THEN
        RETURN;
    END IF;
    v_floors := penstock.turn_floors(p_queue);
    SELECT floor(v_percent * floor(penstock.taken_ms(p_queue, '', v_minute) + sum(
        (left_at_ms - leased_at_ms) * power(2::double precision, greatest(-60, least(0, left_at_ms / 60000 - v_minute)))
    )) / 100) INTO v_most
    FROM unnest(p_leased_at_ms, p_left_at_ms) AS message (leased_at_ms, left_at_ms);
    WITH added AS MATERIALIZED (
        -- The sum of all has '' for its group.
        SELECT coalesce(grp, '') AS grp, sum(
            (left_at_ms - leased_at_ms) * power(2::double precision, greatest(-60, least(0, left_at_ms / 60000 - v_minute)))
        ) AS taken_ms
        FROM unnest(p_groups, p_leased_at_ms, p_left_at_ms) AS message (grp, leased_at_ms, left_at_ms)
        GROUP BY ROLLUP (grp)
    ), seen AS MATERIALIZED (
        SELECT
            a.grp, a.taken_ms, own.place,
            -- Not EXISTS, which is answered by a hash table of everything there is. From the end, where nothing was leased yet,
            -- and not before the floor, where all was. What came late and is before it is missed, and its group loses its account.
            a.grp <> '' AND (
                SELECT true FROM generate_series(0, 4) AS each (tier) CROSS JOIN LATERAL (
                    SELECT true FROM penstock.marked AS m
                    WHERE m.queue = p_queue AND m.grp = a.grp AND m.tier = each.tier
                        AND m.turn >= coalesce(v_floors[each.tier + 1], 0)
                    ORDER BY m.turn DESC LIMIT 1
                ) AS waiting LIMIT 1
            ) IS NULL AND (
                SELECT true FROM penstock.marked AS m
                WHERE m.queue = p_queue AND m.grp = a.grp AND m.turn IS NOT NULL AND m.state <> 1 LIMIT 1
            ) IS NULL AND (
                SELECT true FROM penstock.leased AS l
                WHERE l.queue = p_queue AND l.grp = a.grp AND l.turn IS NOT NULL AND l.lease >= (
                    -- The oldest lease there is. OFFSET, so that it is not looked for along the numbers of all queues.
                    SELECT min(number) FROM (
                        SELECT number FROM penstock.lease WHERE queue = p_queue AND wakes_at_ms > p_now - 60000 OFFSET 0
                    ) AS live
                ) LIMIT 1
            ) IS NULL AS is_gone,
            a.grp <> '' AND v_most < floor(a.taken_ms + coalesce((
                SELECT sum(t.taken_ms * power(2::double precision, greatest(-60, least(0, t.minute - v_minute))))
                FROM penstock.tenant AS t WHERE t.queue = p_queue AND t.grp = a.grp
            ), 0)) AS is_loud
        FROM added AS a LEFT JOIN LATERAL (
            SELECT t.ctid AS place FROM penstock.tenant AS t
            WHERE t.queue = p_queue AND t.grp = a.grp LIMIT 1 FOR UPDATE SKIP LOCKED
        ) AS own ON true
    ), forgotten AS (
        DELETE FROM penstock.tenant WHERE ctid = ANY (ARRAY(
            -- OFFSET keeps it a question for each group, not a join with all there are.
            SELECT old.place FROM seen AS s CROSS JOIN LATERAL (
                SELECT t.ctid AS place FROM penstock.tenant AS t WHERE t.queue = p_queue AND t.grp = s.grp OFFSET 0
            ) AS old
            WHERE s.is_gone
        ))
    ), changed AS (
        UPDATE penstock.tenant AS t
        SET taken_ms = t.taken_ms * power(2::double precision, greatest(-60, least(0, t.minute - v_minute))) + s.taken_ms,
            minute = v_minute, is_loud = s.is_loud
        FROM seen AS s WHERE t.ctid = s.place AND NOT s.is_gone AND s.taken_ms > 0
        RETURNING s.grp, s.taken_ms, s.is_loud
    )
    -- A row that another has changed since this began is not found at its place.
    INSERT INTO penstock.tenant (queue, grp, taken_ms, minute, is_loud)
    SELECT p_queue, grp, taken_ms, v_minute, is_loud FROM (
        SELECT grp, taken_ms, is_loud FROM seen WHERE NOT is_gone AND taken_ms > 0
        EXCEPT SELECT grp, taken_ms, is_loud FROM changed
    ) AS fresh;
END $$
