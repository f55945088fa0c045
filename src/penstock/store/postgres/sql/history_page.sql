-- Settled messages in the order of their transactions, from an offset on and before another: their rows, some of which are
-- packs. The first and the last pack may have more than is asked for. What differs between the messages of a pack comes in
-- one column, since each costs rows that are no packs as much as a value.
SELECT
    at_offset, queue, key, home, home_key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms, deliveries, tier,
    ending, grp, error, body, attributes,
    CASE WHEN packed IS NOT NULL THEN
        int4send(packed) || keys || sent_ats_ms || CASE WHEN body IS NULL THEN '' ELSE body_sizes END
        || CASE WHEN attributes IS NULL THEN '' ELSE attribute_sizes END
    END
FROM penstock.history
WHERE at_offset >= penstock.history_from(%(first)s) AND at_offset < %(end)s
    AND (%(queue)s::integer IS NULL OR queue = %(queue)s) AND (%(from_ms)s::bigint IS NULL OR settled_at_ms >= %(from_ms)s)
ORDER BY at_offset LIMIT %(most)s
