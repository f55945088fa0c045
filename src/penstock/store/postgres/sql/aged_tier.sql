-- The tier that a message has come to by its age: messages age while somebody holds them, too.
CREATE OR REPLACE FUNCTION penstock.aged_tier(p_tier smallint, p_since_ms bigint, p_now bigint, p_aging_ms bigint[])
RETURNS smallint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_tier smallint := p_tier;
    v_since_ms bigint := p_since_ms;
BEGIN
    WHILE v_tier > 0 AND p_aging_ms[v_tier + 1] > 0 AND v_since_ms + p_aging_ms[v_tier + 1] <= p_now LOOP
        v_since_ms := v_since_ms + p_aging_ms[v_tier + 1];
        v_tier := v_tier - 1;
    END LOOP;
    RETURN v_tier;
END $$
