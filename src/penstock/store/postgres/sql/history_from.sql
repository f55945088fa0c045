-- Where to begin to read the history so that an offset is not missed: at the pack that it is in, if there is one. Such a pack
-- is the first of its transaction, and alone in it.
CREATE OR REPLACE FUNCTION penstock.history_from(p_offset bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (SELECT at_offset FROM penstock.history
         WHERE at_offset = p_offset >> 24 << 24 AND packed > p_offset & 16777215),
        p_offset
    );
END $$
