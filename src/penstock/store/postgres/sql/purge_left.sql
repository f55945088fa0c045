-- Whether a purge has anything left, as one snapshot sees it, in which no message is between two tables. What another transaction
-- holds is waited for, but not for long.
CREATE OR REPLACE FUNCTION penstock.purge_left(p_purge penstock.purge) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_plain tid;
    v_marked tid;
    v_lease tid;
BEGIN
    SELECT
        (
            SELECT r.place FROM generate_series(0, 4) AS each (tier) CROSS JOIN LATERAL (
                SELECT ctid AS place FROM penstock.ready
                WHERE queue = p_purge.queue AND tier = each.tier AND number <= p_purge.lasts[each.tier + 1]
                ORDER BY number LIMIT 1
            ) AS r LIMIT 1
        ), (
            SELECT ctid FROM penstock.marked
            WHERE queue = p_purge.queue AND key <= (SELECT max(last) << 3 | 7 FROM unnest(p_purge.lasts) AS last)
                AND key >> 3 <= p_purge.lasts[(key & 7) + 1]
            ORDER BY key LIMIT 1
        ), (
            SELECT ctid FROM penstock.lease WHERE queue = p_purge.queue AND penstock.is_purged(p_purge, number)
            ORDER BY wakes_at_ms LIMIT 1
        )
    INTO v_plain, v_marked, v_lease;
    PERFORM set_config('lock_timeout', '500ms', true);
    PERFORM 1 FROM penstock.ready WHERE ctid = v_plain FOR UPDATE;
    PERFORM 1 FROM penstock.marked WHERE ctid = v_marked FOR UPDATE;
    PERFORM 1 FROM penstock.lease WHERE ctid = v_lease FOR UPDATE;
    RETURN coalesce(v_plain, v_marked, v_lease) IS NOT NULL;
END $$
