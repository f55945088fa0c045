-- Take note that no records are left of a partition of a deleted topic.
CREATE OR REPLACE FUNCTION penstock.drop_partition(p_topic integer, p_partition integer) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM penstock.topic_producer WHERE topic = p_topic AND partition = p_partition;
    DELETE FROM penstock.topic_cleaning WHERE topic = p_topic AND partition = p_partition;
    UPDATE penstock.topic SET is_gone = true
    WHERE number = p_topic AND is_deleted AND p_partition = (settings::json ->> 'partitions')::integer - 1;
    RETURN 0;
END $$
