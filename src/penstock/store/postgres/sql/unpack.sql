-- Give each message of these leases a row of its own: something happens to some of them that does not to all.
-- The caller has locked the leases.
CREATE OR REPLACE FUNCTION penstock.unpack(p_leases bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO penstock.leased (
        lease, row, queue, key, tier, served_tier, sent_at_ms, deliveries, body, attributes
    )
    SELECT e.number, m.nth, e.queue, m.key, m.key & 7, m.key & 7, m.sent_at_ms, 1, m.body, m.attributes
    FROM penstock.lease AS e CROSS JOIN LATERAL penstock.messages_in(
        e.keys, e.sent_ats_ms, e.body_sizes, e.bodies, e.attribute_sizes, e.attributes
    ) AS m
    WHERE e.number = ANY (p_leases) AND e.keys IS NOT NULL;
    UPDATE penstock.lease SET
        keys = NULL, sent_ats_ms = NULL, body_sizes = NULL, bodies = NULL, attribute_sizes = NULL, attributes = NULL,
        lane = NULL, first_number = NULL, last_number = NULL, firsts = NULL, lasts = NULL
    WHERE number = ANY (p_leases) AND keys IS NOT NULL;
END $$
