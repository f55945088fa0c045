-- Give out producer ids that follow each other. Answers with the first.
CREATE OR REPLACE FUNCTION penstock.new_producers(p_count bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_upto bigint;
BEGIN
    UPDATE penstock.topic_state SET next_producer = next_producer + p_count RETURNING next_producer INTO v_upto;
    RETURN v_upto - p_count;
END $$
