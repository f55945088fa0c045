-- Remove everything of a partition before an offset; maintenance drops it. Answers with where the partition starts now.
CREATE OR REPLACE FUNCTION penstock.trim_partition(p_topic integer, p_partition integer, p_before bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_start bigint;
BEGIN
    UPDATE penstock.topic_partition SET start = greatest(start, least(p_before, confirmed))
    WHERE topic = p_topic AND partition = p_partition RETURNING start INTO v_start;
    RETURN coalesce(v_start, 0);
END $$
