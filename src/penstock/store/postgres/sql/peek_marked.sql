-- Messages that wait and have something of their own, of one tier, from a place on: by key.
SELECT
    key, state, tier, sent_at_ms, deliveries, visible_at_ms, grp, error, home, home_key, home_sent_at_ms,
    home_deliveries, own_tier IS NOT NULL, body, attributes, since_ms, ordinal
FROM penstock.marked
WHERE queue = %s AND state = ANY (%s) AND tier = ANY (%s) AND (%s::bytea IS NULL OR coalesce(grp, '') = %s::bytea)
    AND (since_ms, ordinal) > (%s::bigint, %s::bigint)
ORDER BY since_ms, ordinal LIMIT %s
