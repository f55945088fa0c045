-- Messages that wait and have something of their own, of one tier, from a place on.
SELECT
    key, state, tier, sent_at_ms, deliveries, visible_at_ms, grp, error, home, home_key, home_sent_at_ms,
    home_deliveries, own_tier IS NOT NULL,
    -- Only of those in which the text is that is sought.
    CASE WHEN %(text)s::bytea IS NULL OR position(%(text)s::bytea IN body) > 0 THEN body END, attributes,
    octet_length(body) + coalesce(octet_length(attributes), 0), since_ms, ordinal
FROM penstock.marked
WHERE queue = %(queue)s AND state = 1 AND tier = %(tier)s
    AND (since_ms, ordinal) > (%(since)s::bigint, %(ordinal)s::bigint)
    AND (%(group)s::bytea IS NULL OR coalesce(grp, '') = %(group)s::bytea)
ORDER BY since_ms, ordinal LIMIT %(most)s
