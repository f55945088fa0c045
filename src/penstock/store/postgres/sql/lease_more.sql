-- Add whatever there is, in the order of p_order, to a lease of plain messages that has not as many as are wanted.
CREATE OR REPLACE FUNCTION penstock.lease_more(
    p_queue integer, p_want integer, p_bytes_max bigint, p_order smallint[], p_bounds bigint[],
    INOUT count integer, INOUT keys bytea, INOUT tiers bytea, INOUT deliveries bytea, INOUT sent_at_ms bytea,
    INOUT sizes bytea, INOUT bodies bytea, INOUT attribute_sizes bytea, INOUT attributes bytea
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_more record;
    v_size bigint;
BEGIN
    v_size := coalesce(octet_length(bodies), 0) + coalesce(octet_length(attributes), 0);
    IF v_size > p_bytes_max / 2 THEN
        RETURN;
    END IF;
    SELECT * INTO v_more FROM penstock.hand_out_plain(
        p_queue, count, p_want - count, p_bytes_max - v_size, p_order,
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
