-- The way of a healthy lease: every message that waits is one nothing has happened to. Raises PS005 if what was taken
-- to be small is too large.
CREATE OR REPLACE FUNCTION penstock.lease_plain(
    p_queue integer, p_lease bigint, p_want integer, p_bytes_max bigint, p_quotas integer[], p_order smallint[],
    p_bounds bigint[], p_is_small boolean,
    OUT count integer, OUT keys bytea, OUT tiers bytea, OUT deliveries bytea, OUT sent_at_ms bytea, OUT sizes bytea,
    OUT bodies bytea, OUT attribute_sizes bytea, OUT attributes bytea
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- The tier that gives all, if one does.
    v_tier smallint := array_position(p_quotas, p_want) - 1;
    v_more record;
    v_size bigint;
BEGIN
    IF v_tier IS NOT NULL AND p_is_small THEN
        -- So many of one tier: the shortest way. That they are too large for one answer is found out afterwards.
        WITH gone AS (
            DELETE FROM penstock.ready WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM penstock.ready
                WHERE queue = p_queue AND tier = v_tier AND number >= p_bounds[v_tier + 1]
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
    ELSE
        SELECT * INTO count, keys, tiers, deliveries, sent_at_ms, sizes, bodies, attribute_sizes, attributes
        FROM penstock.hand_out_plain(
            p_queue, p_lease, 0, p_want, p_bytes_max, ARRAY[0, 1, 2, 3, 4]::smallint[], p_quotas, p_bounds
        );
    END IF;
    v_size := coalesce(octet_length(bodies), 0) + coalesce(octet_length(attributes), 0);
    IF count = p_want OR v_size > p_bytes_max / 2 THEN
        RETURN;
    END IF;
    SELECT * INTO v_more FROM penstock.hand_out_plain(
        p_queue, p_lease, count, p_want - count, p_bytes_max - v_size, p_order,
        array_fill(p_want - count, ARRAY[cardinality(p_order)]),
        ARRAY(SELECT p_bounds[tier + 1] FROM unnest(p_order) AS tier)
    );
    IF v_more.count > 0 THEN
        IF attribute_sizes IS NOT NULL OR v_more.attribute_sizes IS NOT NULL THEN
            attribute_sizes := coalesce(attribute_sizes, decode(repeat('00000000', count), 'hex'))
                || coalesce(v_more.attribute_sizes, decode(repeat('00000000', v_more.count), 'hex'));
            attributes := coalesce(attributes, '') || coalesce(v_more.attributes, '');
        END IF;
        count := count + v_more.count; keys := coalesce(keys, '') || v_more.keys;
        tiers := coalesce(tiers, '') || v_more.tiers; deliveries := coalesce(deliveries, '') || v_more.deliveries;
        sent_at_ms := coalesce(sent_at_ms, '') || v_more.sent_at_ms; sizes := coalesce(sizes, '') || v_more.sizes;
        bodies := coalesce(bodies, '') || v_more.bodies;
    END IF;
END $$
