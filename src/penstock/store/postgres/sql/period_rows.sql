-- The messages of one period of the history, those of packs one by one.
SELECT
    h.period, h.at_offset + coalesce(m.nth, 0) AS at_offset, h.queue, coalesce(m.key, h.key) AS key, h.home, h.home_key,
    coalesce(m.sent_at_ms, h.sent_at_ms) AS sent_at_ms, h.first_leased_ms, h.last_leased_ms, h.settled_at_ms, h.deliveries,
    coalesce(m.key & 7, h.tier) AS tier, h.ending, h.grp, h.error,
    CASE WHEN h.packed IS NULL THEN h.body ELSE m.body END AS body,
    CASE WHEN h.packed IS NULL THEN h.attributes ELSE m.attributes END AS attributes
FROM penstock.history AS h LEFT JOIN LATERAL penstock.messages_in(
    h.keys, h.sent_ats_ms, h.body_sizes, h.body, h.attribute_sizes, h.attributes
) AS m ON h.packed IS NOT NULL
WHERE h.period =
