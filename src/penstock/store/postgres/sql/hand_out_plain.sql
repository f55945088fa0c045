-- Take messages nothing has happened to: of each tier the first so many, no more than wanted in all. The caller packs
-- them into a lease; p_taken is how many it has of others already.
CREATE OR REPLACE FUNCTION penstock.hand_out_plain(
    p_queue integer, p_taken integer, p_want integer, p_bytes_max bigint,
    p_tiers smallint[], p_quotas integer[], p_bounds bigint[],
    OUT count integer, OUT keys bytea, OUT tiers bytea, OUT deliveries bytea, OUT sent_at_ms bytea, OUT sizes bytea,
    OUT bodies bytea, OUT attribute_sizes bytea, OUT attributes bytea
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    WITH candidate AS MATERIALIZED (
        SELECT r.place, r.size
        FROM unnest(p_tiers, p_quotas, p_bounds) AS t (tier, quota, bound)
        CROSS JOIN LATERAL (
            SELECT ctid AS place, octet_length(body) + coalesce(octet_length(attributes), 0) AS size
            FROM penstock.ready
            WHERE queue = p_queue AND tier = t.tier AND number >= t.bound
            ORDER BY number LIMIT t.quota FOR UPDATE SKIP LOCKED
        ) AS r
    ), chosen AS MATERIALIZED (
        SELECT place, row_number() OVER () AS row, sum(size) OVER (ROWS UNBOUNDED PRECEDING) AS total FROM candidate
    ), gone AS (
        DELETE FROM penstock.ready AS r USING chosen AS c
        WHERE r.ctid = c.place AND c.row <= p_want AND (c.total <= p_bytes_max OR c.row + p_taken = 1)
        RETURNING
            c.row, r.number << 3 | r.tier AS key, r.tier AS served_tier, 1 AS deliveries, r.sent_at_ms,
            r.body, r.attributes
    )
    SELECT count(*)::integer AS count,
        string_agg(int8send(key), '') AS keys,
        string_agg(set_byte(E'\\x00', 0, served_tier), '') AS tiers,
        string_agg(int4send(deliveries), '') AS deliveries,
        string_agg(int8send(sent_at_ms), '') AS sent_at_ms,
        string_agg(int4send(octet_length(body)), '') AS sizes,
        string_agg(body, '') AS bodies,
        CASE WHEN bool_or(attributes IS NOT NULL)
            THEN string_agg(int4send(coalesce(octet_length(attributes), 0)), '') END AS attribute_sizes,
        string_agg(attributes, '') AS attributes
    INTO count, keys, tiers, deliveries, sent_at_ms, sizes, bodies, attribute_sizes, attributes
    FROM (SELECT * FROM gone ORDER BY row) AS given;
END $$
