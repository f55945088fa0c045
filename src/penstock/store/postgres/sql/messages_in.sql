-- The messages of a pack, one by one; without bodies if their sizes are NULL.
CREATE OR REPLACE FUNCTION penstock.messages_in(
    p_keys bytea, p_sent_ats_ms bytea, p_body_sizes bytea, p_bodies bytea, p_attribute_sizes bytea, p_attributes bytea
) RETURNS TABLE (nth integer, key bigint, sent_at_ms bigint, body bytea, attributes bytea)
LANGUAGE plpgsql IMMUTABLE AS $$
#variable_conflict use_column
DECLARE
    -- Joined with nothing, what is kept in pieces elsewhere is brought here once and not for each message.
    v_keys bytea := p_keys || ''::bytea;
    v_sent_ats_ms bytea := p_sent_ats_ms || ''::bytea;
    v_body_sizes bytea := p_body_sizes || ''::bytea;
    v_bodies bytea := p_bodies || ''::bytea;
    v_attributes bytea := p_attributes || ''::bytea;
    v_body_at integer := 1;
    v_attributes_at integer := 1;
    v_size integer;
BEGIN
    FOR n IN 0 .. octet_length(v_keys) / 8 - 1 LOOP
        nth := n;
        key := ('x' || encode(substring(v_keys FROM n * 8 + 1 FOR 8), 'hex'))::bit(64)::bigint;
        sent_at_ms := ('x' || encode(substring(v_sent_ats_ms FROM n * 8 + 1 FOR 8), 'hex'))::bit(64)::bigint;
        IF v_body_sizes IS NOT NULL THEN
            v_size := ('x' || encode(substring(v_body_sizes FROM n * 4 + 1 FOR 4), 'hex'))::bit(32)::integer;
            body := substring(v_bodies FROM v_body_at FOR v_size);
            v_body_at := v_body_at + v_size;
        END IF;
        IF p_attribute_sizes IS NOT NULL THEN
            v_size := ('x' || encode(substring(p_attribute_sizes FROM n * 4 + 1 FOR 4), 'hex'))::bit(32)::integer;
            attributes := CASE WHEN v_size > 0 THEN substring(v_attributes FROM v_attributes_at FOR v_size) END;
            v_attributes_at := v_attributes_at + v_size;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$
