-- Keep a generation of a group, and offsets: one of -1 is forgotten. NULL as the generation leaves it as it is, and an empty one
-- forgets the group with all it has. Answers with false, and does nothing, if another server coordinates the group by now.
CREATE OR REPLACE FUNCTION penstock.write_group(
    p_name text, p_epoch bigint, p_generation bytea, p_topics integer[], p_partitions integer[], p_nexts bigint[],
    p_leader_epochs integer[], p_metadata bytea[], p_committed bigint[], p_expires bigint[]
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    -- Also where nothing of it changes: an offset must not be read before this is confirmed, nor be written by two servers.
    UPDATE penstock.consumer_group SET generation = coalesce(p_generation, generation)
    WHERE name = p_name AND epoch = p_epoch;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_generation = '' THEN
        DELETE FROM penstock.committed_offset WHERE group_name = p_name;
        DELETE FROM penstock.consumer_group WHERE name = p_name;
        RETURN true;
    END IF;
    DELETE FROM penstock.committed_offset AS kept USING unnest(p_topics, p_partitions, p_nexts) AS row (topic, partition, next)
    WHERE kept.group_name = p_name AND kept.topic = row.topic AND kept.partition = row.partition AND row.next < 0;
    INSERT INTO penstock.committed_offset AS kept (
        group_name, topic, partition, next, leader_epoch, metadata, committed_at_ms, expires_at_ms
    )
    SELECT p_name, topic, partition, next, leader_epoch, metadata, committed_at_ms, nullif(expires_at_ms, -1)
    FROM unnest(p_topics, p_partitions, p_nexts, p_leader_epochs, p_metadata, p_committed, p_expires)
        AS row (topic, partition, next, leader_epoch, metadata, committed_at_ms, expires_at_ms)
    WHERE next >= 0 ORDER BY topic, partition
    ON CONFLICT (group_name, topic, partition) DO UPDATE SET
        next = excluded.next, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata,
        committed_at_ms = excluded.committed_at_ms, expires_at_ms = excluded.expires_at_ms;
    RETURN true;
END $$
