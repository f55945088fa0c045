-- Whether a lease holds a message that goes with a purge: it may hold later ones, too.
CREATE OR REPLACE FUNCTION penstock.is_purged(p_purge penstock.purge, p_lease bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM penstock.in_lease(p_lease, false) WHERE key >> 3 <= p_purge.lasts[(key & 7) + 1]);
END $$
