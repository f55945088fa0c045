-- Put what compaction left in the place of record batches, each from one offset to another; it is stored as the first of them, and
-- the others go. Answers with the bytes that this saves; NULL, and nothing is done, if a server has rewritten some since the caller read
-- `rewrites`.
CREATE OR REPLACE FUNCTION penstock.rewrite_frames(
    p_topic integer, p_partition integer, p_rewrites bigint, p_bases bigint[], p_nexts bigint[], p_times bigint[],
    p_batches bytea[]
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_before bigint;
    v_after bigint;
BEGIN
    PERFORM 1 FROM penstock.topic_partition
    WHERE topic = p_topic AND partition = p_partition AND rewrites = p_rewrites;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT coalesce(sum(size), 0) INTO v_before FROM (
        SELECT octet_length(f.bytes) AS size FROM unnest(p_bases, p_nexts) AS new (base, next)
        JOIN penstock.frame AS f
            ON f.topic = p_topic AND f.partition = p_partition AND f.base >= new.base AND f.base < new.next
        ORDER BY f.base FOR UPDATE OF f
    ) AS replaced;
    DELETE FROM penstock.frame AS f USING unnest(p_bases, p_nexts) AS new (base, next)
    WHERE f.topic = p_topic AND f.partition = p_partition AND f.base > new.base AND f.base < new.next;
    WITH changed AS (
        UPDATE penstock.frame AS f SET next = new.next, time_ms = new.time_ms, bytes = new.bytes
        FROM unnest(p_bases, p_nexts, p_times, p_batches) AS new (base, next, time_ms, bytes)
        WHERE f.topic = p_topic AND f.partition = p_partition AND f.base = new.base
        RETURNING octet_length(new.bytes) AS size
    )
    SELECT coalesce(sum(size), 0) INTO v_after FROM changed;
    -- Last, so that what is appended waits for the commit only.
    UPDATE penstock.topic_partition SET rewrites = rewrites + 1, size_bytes = greatest(0, size_bytes - v_before + v_after)
    WHERE topic = p_topic AND partition = p_partition AND rewrites = p_rewrites;
    IF NOT FOUND THEN
        -- The caller asks again, and is told at the beginning.
        RAISE EXCEPTION 'another server has rewritten the partition' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN v_before - v_after;
END $$
