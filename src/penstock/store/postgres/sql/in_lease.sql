-- The messages of a lease, whether each has a row or all are packed in that of the lease. To take bodies out of a pack takes
-- longer than all the rest.
CREATE OR REPLACE FUNCTION penstock.in_lease(p_lease bigint, p_with_bodies boolean) RETURNS SETOF penstock.leased
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT * FROM penstock.leased WHERE lease = p_lease ORDER BY row;
    IF NOT FOUND THEN
        RETURN QUERY
        SELECT
            e.number, m.nth, e.queue, m.key, (m.key & 7)::smallint, (m.key & 7)::smallint, m.sent_at_ms, 1,
            NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::integer, NULL::bigint,
            NULL::bytea, NULL::text, NULL::bytea, NULL::smallint, NULL::bigint, NULL::integer, NULL::bigint,
            NULL::bigint, NULL::integer, m.body, m.attributes
        FROM penstock.lease AS e CROSS JOIN LATERAL penstock.messages_in(
            e.keys, e.sent_ats_ms, CASE WHEN p_with_bodies THEN e.body_sizes END,
            CASE WHEN p_with_bodies THEN e.bodies END, CASE WHEN p_with_bodies THEN e.attribute_sizes END,
            CASE WHEN p_with_bodies THEN e.attributes END
        ) AS m
        WHERE e.number = p_lease AND e.keys IS NOT NULL;
    END IF;
END $$
