-- Lock leases in the order of their numbers, if they are there; nobody else changes what is in them until the end.
CREATE OR REPLACE FUNCTION penstock.lock_leases(p_queue integer, p_leases bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM penstock.lease AS e
    JOIN (SELECT DISTINCT number FROM unnest(p_leases) AS number ORDER BY number) AS w ON w.number = e.number
    WHERE e.queue = p_queue ORDER BY e.number FOR UPDATE OF e;
END $$
