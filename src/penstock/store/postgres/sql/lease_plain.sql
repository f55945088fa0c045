-- Lease where every message that waits is one nothing has happened to: of each tier its quota, and then whatever there is.
CREATE OR REPLACE FUNCTION penstock.lease_plain(
    p_queue integer, p_want integer, p_bytes_max bigint, p_quotas integer[], p_order smallint[],
    p_bounds bigint[],
    OUT count integer, OUT keys bytea, OUT tiers bytea, OUT deliveries bytea, OUT sent_at_ms bytea, OUT sizes bytea,
    OUT bodies bytea, OUT attribute_sizes bytea, OUT attributes bytea
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT * INTO count, keys, tiers, deliveries, sent_at_ms, sizes, bodies, attribute_sizes, attributes
    FROM penstock.hand_out_plain(
        p_queue, 0, p_want, p_bytes_max, ARRAY[0, 1, 2, 3, 4]::smallint[], p_quotas, p_bounds
    );
    IF count < p_want THEN
        SELECT * INTO count, keys, tiers, deliveries, sent_at_ms, sizes, bodies, attribute_sizes, attributes
        FROM penstock.lease_more(
            p_queue, p_want, p_bytes_max, p_order, p_bounds,
            count, keys, tiers, deliveries, sent_at_ms, sizes, bodies, attribute_sizes, attributes
        );
    END IF;
END $$
