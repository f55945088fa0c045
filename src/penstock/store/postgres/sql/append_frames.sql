-- Append record batches, which come in the order of their partitions. Answers with four numbers for each: what became of it,
-- its first offset or the sequence that belongs there, its time of arrival if its records got that, and the next offset.
--
-- 0 appended · 1 there already · 2 out of order · 3 of a producer that was replaced · 4 no such partition
-- 5 of a producer that is not known
--
-- The row of a partition is locked until the commit: so offsets are dense, and visible in their order.
CREATE OR REPLACE FUNCTION penstock.append_frames(
    p_topics integer[], p_partitions integer[], p_producers bigint[], p_epochs integer[], p_sequences bigint[],
    p_counts integer[], p_times bigint[], p_arrivals bigint[], p_needs_known smallint[], p_batches bytea[], p_now bigint,
    p_is_local boolean
) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    v_answer bytea := '';
    v_is_there boolean := false;
    v_added boolean := false;
    v_partition penstock.topic_partition;
    v_producer penstock.topic_producer;
    v_is_known boolean;
    v_last bigint;
    v_found bigint;
    v_next bigint;
BEGIN
    IF p_is_local THEN
        PERFORM set_config('synchronous_commit', 'local', true) WHERE current_setting('synchronous_commit') <> 'off';
    END IF;
    FOR i IN 1 .. cardinality(p_topics) + 1 LOOP
        IF i > cardinality(p_topics) OR v_partition.topic IS DISTINCT FROM p_topics[i]
                OR v_partition.partition IS DISTINCT FROM p_partitions[i] THEN
            IF v_added THEN
                UPDATE penstock.topic_partition SET
                    next = v_partition.next, size_bytes = v_partition.size_bytes, latest_ms = v_partition.latest_ms,
                    confirmed = CASE WHEN p_is_local THEN confirmed ELSE v_partition.next END
                WHERE topic = v_partition.topic AND partition = v_partition.partition;
            END IF;
            EXIT WHEN i > cardinality(p_topics);
            SELECT * INTO v_partition FROM penstock.topic_partition
            WHERE topic = p_topics[i] AND partition = p_partitions[i] FOR NO KEY UPDATE;
            v_is_there := FOUND;
            v_added := false;
        END IF;
        IF NOT v_is_there THEN
            v_answer := v_answer || int8send(4) || int8send(0) || int8send(-1) || int8send(0);
            CONTINUE;
        END IF;
        v_next := v_partition.next + p_counts[i];
        IF p_producers[i] >= 0 THEN
            SELECT * INTO v_producer FROM penstock.topic_producer
            WHERE topic = p_topics[i] AND partition = p_partitions[i] AND producer = p_producers[i];
            v_is_known := FOUND;
            IF NOT v_is_known THEN
                IF p_needs_known[i] = 1 AND p_sequences[i] <> 0 THEN
                    v_answer := v_answer || int8send(5) || int8send(0) || int8send(-1) || int8send(0);
                    CONTINUE;
                END IF;
                v_producer.sent := '{}';
            ELSIF p_epochs[i] < v_producer.epoch THEN
                v_answer := v_answer || int8send(3) || int8send(v_producer.epoch) || int8send(-1) || int8send(0);
                CONTINUE;
            ELSIF p_epochs[i] > v_producer.epoch THEN
                IF p_sequences[i] <> 0 THEN
                    v_answer := v_answer || int8send(2) || int8send(0) || int8send(-1) || int8send(0);
                    CONTINUE;
                END IF;
                v_producer.sent := '{}';
            END IF;
            v_last := (p_sequences[i] + p_counts[i] - 1) % 2147483648;
            IF cardinality(v_producer.sent) > 0 THEN
                SELECT min(at) INTO v_found FROM generate_series(1, cardinality(v_producer.sent), 5) AS at
                WHERE v_producer.sent[at] = p_sequences[i] AND v_producer.sent[at + 1] = v_last;
                IF v_found IS NOT NULL THEN
                    v_answer := v_answer || int8send(1) || int8send(v_producer.sent[v_found + 2])
                        || int8send(v_producer.sent[v_found + 4]) || int8send(v_producer.sent[v_found + 3]);
                    CONTINUE;
                END IF;
                v_found := (v_producer.sent[cardinality(v_producer.sent) - 3] + 1) % 2147483648;
                IF p_sequences[i] <> v_found THEN
                    v_answer := v_answer || int8send(2) || int8send(v_found) || int8send(-1) || int8send(0);
                    CONTINUE;
                END IF;
            END IF;
            v_producer.sent := v_producer.sent || ARRAY[p_sequences[i], v_last, v_partition.next, v_next, p_arrivals[i]];
            INSERT INTO penstock.topic_producer (topic, partition, producer, epoch, last_at_ms, sent)
            VALUES (
                p_topics[i], p_partitions[i], p_producers[i], p_epochs[i], p_now,
                v_producer.sent[greatest(1, cardinality(v_producer.sent) - 24) :]
            )
            ON CONFLICT (topic, partition, producer) DO UPDATE
            SET epoch = excluded.epoch, last_at_ms = excluded.last_at_ms, sent = excluded.sent;
        END IF;
        v_partition.latest_ms := greatest(v_partition.latest_ms, p_times[i]);
        -- The first offset of a batch and the epoch of its leader are outside of its checksum.
        INSERT INTO penstock.frame (topic, partition, base, next, arrived_at_ms, time_ms, latest_ms, bytes)
        VALUES (
            p_topics[i], p_partitions[i], v_partition.next, v_next, p_now, p_times[i], v_partition.latest_ms,
            int8send(v_partition.next) || substr(p_batches[i], 9, 4) || int4send(0) || substr(p_batches[i], 17)
        );
        v_answer := v_answer || int8send(0) || int8send(v_partition.next) || int8send(p_arrivals[i]) || int8send(v_next);
        v_partition.next := v_next;
        v_partition.size_bytes := v_partition.size_bytes + octet_length(p_batches[i]);
        v_added := true;
    END LOOP;
    RETURN v_answer;
END $$
