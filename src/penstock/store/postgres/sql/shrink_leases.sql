-- Messages have left these leases, once for each time a lease is named: those that hold nothing any more go.
CREATE OR REPLACE FUNCTION penstock.shrink_leases(p_leases bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE penstock.lease AS e SET
        held = e.held - gone.count,
        wakes_at_ms = CASE WHEN NOT e.has_own_ends THEN e.until_ms ELSE coalesce((
            SELECT min(coalesce(l.until_ms, e.until_ms)) FROM penstock.leased AS l WHERE l.lease = e.number
        ), e.until_ms) END
    FROM (SELECT number, count(*) AS count FROM unnest(p_leases) AS number GROUP BY number) AS gone
    WHERE e.number = gone.number;
    DELETE FROM penstock.lease WHERE number = ANY (p_leases) AND held <= 0;
END $$
