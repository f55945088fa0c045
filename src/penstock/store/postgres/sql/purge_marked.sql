-- Settle messages of a queue that is purged and that something has happened to, among the next p_most; answers with how many, and
-- with the key to go on from, NULL if none was left to look at.
CREATE OR REPLACE FUNCTION penstock.purge_marked(
    p_purge penstock.purge, p_now bigint, p_most integer, p_bytes_most bigint, p_period integer,
    OUT count bigint, OUT next bigint
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_keys bigint[];
BEGIN
    count := 0;
    SELECT max(key) + 1, array_agg(key) FILTER (WHERE key >> 3 <= p_purge.lasts[(key & 7) + 1]) INTO next, v_keys
    FROM (
        SELECT key, bytes, sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) AS total FROM (
            SELECT key, octet_length(body) + coalesce(octet_length(attributes), 0) AS bytes FROM penstock.marked
            WHERE queue = p_purge.queue AND key >= p_purge.froms[6]
                AND key <= (SELECT max(last) << 3 | 7 FROM unnest(p_purge.lasts) AS last)
            ORDER BY key LIMIT p_most
        ) AS page
    ) AS summed
    -- They are in memory at once. One always goes.
    WHERE total - bytes < p_bytes_most;
    IF p_purge.is_fifo THEN
        PERFORM penstock.lock_lines(p_purge.queue, ARRAY(
            SELECT m.grp FROM unnest(v_keys) AS w (key) CROSS JOIN LATERAL (
                SELECT grp FROM penstock.marked WHERE queue = p_purge.queue AND key = w.key OFFSET 0
            ) AS m
        ));
    END IF;
    SELECT array_agg(key) INTO v_keys FROM (
        SELECT m.key FROM unnest(v_keys) AS w (key) CROSS JOIN LATERAL (
            SELECT key FROM penstock.marked WHERE queue = p_purge.queue AND key = w.key OFFSET 0 FOR UPDATE SKIP LOCKED
        ) AS m
    ) AS locked;
    IF v_keys IS NOT NULL THEN
        SELECT count(*) INTO count FROM penstock.settle_marked(
            p_purge.queue, p_now, v_keys, p_purge.ending, p_purge.is_fifo, p_purge.history, p_period
        );
    END IF;
END $$
