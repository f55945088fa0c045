-- The tier of a leased message, and since when it has it: messages age and escalations end while they are held,
-- too. Nothing is written then: it is found out when it is asked for, and when the message comes back.
CREATE OR REPLACE FUNCTION penstock.held_tier(
    p_tier smallint, p_since_ms bigint, p_own_tier smallint, p_until_ms bigint, p_now bigint, p_aging_ms bigint[],
    OUT tier smallint, OUT since_ms bigint, OUT is_escalated boolean
)
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    tier := p_tier;
    since_ms := p_since_ms;
    is_escalated := p_own_tier IS NOT NULL;
    IF p_until_ms > 0 AND p_until_ms <= p_now THEN
        tier := p_own_tier;
        since_ms := p_until_ms;
        is_escalated := false;
    END IF;
    WHILE tier > 0 AND p_aging_ms[tier + 1] > 0 AND since_ms + p_aging_ms[tier + 1] <= p_now LOOP
        since_ms := since_ms + p_aging_ms[tier + 1];
        tier := tier - 1;
    END LOOP;
END $$
