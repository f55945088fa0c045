-- Restart every lease at full length, because no server was there to extend it. Each lease once in its life.
CREATE OR REPLACE FUNCTION penstock.rearm(p_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE penstock.leased AS l SET until_ms = p_now + l.lease_ms
    FROM penstock.lease AS e WHERE e.number = l.lease AND NOT e.is_rearmed AND l.until_ms IS NOT NULL;
    UPDATE penstock.lease AS e SET
        until_ms = p_now + e.lease_ms, is_rearmed = true,
        wakes_at_ms = CASE WHEN NOT e.has_own_ends THEN p_now + e.lease_ms ELSE coalesce((
            SELECT min(coalesce(l.until_ms, p_now + e.lease_ms)) FROM penstock.leased AS l WHERE l.lease = e.number
        ), p_now + e.lease_ms) END
    WHERE NOT e.is_rearmed;
END $$
