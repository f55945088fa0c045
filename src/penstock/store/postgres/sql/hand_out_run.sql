-- Hand out the first so many messages of one tier, that nothing has happened to: the shortest way. Raises PS005 if they
-- are too large for one answer.
CREATE OR REPLACE FUNCTION penstock.hand_out_run(
    p_queue integer, p_lease bigint, p_want integer, p_bytes_max bigint, p_tier smallint, p_bound bigint,
    OUT count integer, OUT keys bytea, OUT tiers bytea, OUT deliveries bytea, OUT sent_at_ms bytea, OUT sizes bytea,
    OUT bodies bytea, OUT attribute_sizes bytea, OUT attributes bytea
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    WITH gone AS (
        DELETE FROM penstock.ready WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM penstock.ready
            WHERE queue = p_queue AND tier = p_tier AND number >= p_bound
            ORDER BY number LIMIT p_want FOR UPDATE SKIP LOCKED
        ))
        RETURNING number, tier AS served_tier, sent_at_ms, body, attributes
    ), given AS MATERIALIZED (
        SELECT row_number() OVER (ORDER BY number) - 1 AS row, number << 3 | served_tier AS key, served_tier,
            1 AS deliveries, sent_at_ms, body, attributes
        FROM gone
    ), handed AS (
        INSERT INTO penstock.leased (
            lease, row, queue, key, tier, served_tier, sent_at_ms, deliveries, body, attributes
        )
        SELECT p_lease, row, p_queue, key, served_tier, served_tier, sent_at_ms, 1, body, attributes FROM given
    )
    SELECT count(*)::integer AS count,
        string_agg(int8send(key), '') AS keys,
        string_agg(set_byte('\x00', 0, served_tier), '') AS tiers,
        string_agg(int4send(deliveries), '') AS deliveries,
        string_agg(int8send(sent_at_ms), '') AS sent_at_ms,
        string_agg(int4send(octet_length(body)), '') AS sizes,
        string_agg(body, '') AS bodies,
        CASE WHEN bool_or(attributes IS NOT NULL)
            THEN string_agg(int4send(coalesce(octet_length(attributes), 0)), '') END AS attribute_sizes,
        string_agg(attributes, '') AS attributes
    INTO count, keys, tiers, deliveries, sent_at_ms, sizes, bodies, attribute_sizes, attributes
    FROM given;
    IF count > 1 AND octet_length(bodies) + coalesce(octet_length(attributes), 0) > p_bytes_max THEN
        RAISE EXCEPTION 'too large' USING ERRCODE = 'PS005';
    END IF;
END $$
