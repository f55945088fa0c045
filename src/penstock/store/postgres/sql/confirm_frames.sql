-- Let consumers see what was appended without waiting for a standby: this commit waits for it, and for all before it.
CREATE OR REPLACE FUNCTION penstock.confirm_frames(p_topics integer[], p_partitions integer[]) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    v_answer bytea := '';
    v_next bigint;
BEGIN
    FOR i IN 1 .. cardinality(p_topics) LOOP
        UPDATE penstock.topic_partition SET confirmed = next WHERE topic = p_topics[i] AND partition = p_partitions[i]
        RETURNING next INTO v_next;
        v_answer := v_answer || int8send(coalesce(v_next, 0));
    END LOOP;
    RETURN v_answer;
END $$
