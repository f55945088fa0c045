-- Move the start of a partition past what is too old or too much; NULL stands for no bound. Answers with the start.
CREATE OR REPLACE FUNCTION penstock.age_partition(
    p_topic integer, p_partition integer, p_before_ms bigint, p_bytes_max bigint
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_start bigint;
    v_kept bigint;
    v_at penstock.topic_partition;
BEGIN
    SELECT * INTO v_at FROM penstock.topic_partition WHERE topic = p_topic AND partition = p_partition;
    v_start := v_at.start;
    IF p_before_ms IS NOT NULL THEN
        -- The first that is young enough by the latest time of its records or, if they have none, by its arrival.
        SELECT base INTO v_kept FROM penstock.frame
        WHERE topic = p_topic AND partition = p_partition
            AND (CASE WHEN time_ms < 0 THEN arrived_at_ms ELSE time_ms END) >= p_before_ms
        ORDER BY base LIMIT 1;
        v_start := greatest(v_start, least(coalesce(v_kept, v_at.confirmed), v_at.confirmed));
    END IF;
    IF p_bytes_max IS NOT NULL AND v_at.size_bytes > p_bytes_max THEN
        SELECT base INTO v_kept FROM (
            SELECT base, sum(octet_length(bytes)) OVER (ORDER BY base) AS upto FROM penstock.frame
            WHERE topic = p_topic AND partition = p_partition
        ) AS summed WHERE upto > v_at.size_bytes - p_bytes_max ORDER BY base LIMIT 1;
        v_start := greatest(v_start, least(coalesce(v_kept, v_at.confirmed), v_at.confirmed));
    END IF;
    IF v_start > v_at.start THEN
        UPDATE penstock.topic_partition SET start = greatest(start, v_start) WHERE topic = p_topic AND partition = p_partition
        RETURNING start INTO v_start;
    END IF;
    RETURN v_start;
END $$
