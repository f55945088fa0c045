-- Take note of the cleanings of a partition, unless another server has rewritten it meanwhile or its topic was deleted.
CREATE OR REPLACE FUNCTION penstock.note_cleaning(
    p_topic integer, p_partition integer, p_rewrites bigint, p_cleanings bigint[]
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO penstock.topic_cleaning (topic, partition, cleanings)
    SELECT topic, partition, p_cleanings FROM penstock.topic_partition
    WHERE topic = p_topic AND partition = p_partition AND rewrites = p_rewrites
    ON CONFLICT (topic, partition) DO UPDATE SET cleanings = excluded.cleanings;
    RETURN FOUND;
END $$
