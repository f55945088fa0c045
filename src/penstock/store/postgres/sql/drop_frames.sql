-- Remove record batches below an offset, some at a time, oldest first. Answers with how many were removed.
CREATE OR REPLACE FUNCTION penstock.drop_frames(p_topic integer, p_partition integer, p_before bigint, p_most integer)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
    v_size bigint;
BEGIN
    WITH old AS (
        SELECT base FROM penstock.frame WHERE topic = p_topic AND partition = p_partition AND next <= p_before
        ORDER BY base LIMIT p_most
    ), dropped AS (
        DELETE FROM penstock.frame AS f USING old
        WHERE f.topic = p_topic AND f.partition = p_partition AND f.base = old.base RETURNING octet_length(bytes) AS size
    )
    SELECT count(*), coalesce(sum(size), 0) INTO v_count, v_size FROM dropped;
    IF v_count > 0 THEN
        UPDATE penstock.topic_partition SET size_bytes = greatest(0, size_bytes - v_size)
        WHERE topic = p_topic AND partition = p_partition;
    END IF;
    RETURN v_count;
END $$
