-- Hand out messages of any kind, of which the caller has found and locked the places.
CREATE OR REPLACE FUNCTION penstock.hand_out(
    p_queue integer, p_lease bigint, p_now bigint, p_places tid[], p_are_marked boolean[], p_tiers smallint[],
    OUT count integer, OUT keys bytea, OUT tiers bytea, OUT deliveries bytea, OUT sent_at_ms bytea, OUT sizes bytea,
    OUT bodies bytea, OUT attribute_sizes bytea, OUT attributes bytea, OUT groups bytea[], OUT errors text[],
    OUT first_leased_ms bytea, OUT homes integer[], OUT home_keys bigint[], OUT home_sent_at_ms bigint[],
    OUT home_deliveries integer[]
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_tenants bytea[];
BEGIN
    WITH chosen AS MATERIALIZED (
        SELECT * FROM unnest(p_places, p_are_marked, p_tiers) WITH ORDINALITY AS c (place, is_marked, served, n)
    ), plain AS (
        DELETE FROM penstock.ready AS r USING chosen AS c WHERE NOT c.is_marked AND r.ctid = c.place
        RETURNING r.*, c.n, c.served
    ), marked AS (
        DELETE FROM penstock.marked AS m USING chosen AS c WHERE c.is_marked AND m.ctid = c.place
        RETURNING m.*, c.n, c.served
    ), given AS MATERIALIZED (
        SELECT * FROM (
            SELECT
                n, number << 3 | tier AS key, tier, served AS served_tier, sent_at_ms, 1 AS deliveries,
                NULL::bigint AS since_ms, NULL::bigint AS ordinal, NULL::bigint AS turn, NULL::integer AS deliveries_max,
                NULL::bigint AS first_leased_ms, NULL::bytea AS grp, NULL::text AS error, NULL::bytea AS dedup_id,
                NULL::smallint AS own_tier, NULL::bigint AS escalated_until_ms, NULL::integer AS home,
                NULL::bigint AS home_key, NULL::bigint AS home_sent_at_ms, NULL::integer AS home_deliveries,
                body, attributes
            FROM plain
            UNION ALL
            SELECT
                n, key, tier, served, sent_at_ms, least(deliveries, 65534) + 1, since_ms, ordinal, turn, deliveries_max,
                CASE WHEN deliveries > 0 THEN first_leased_ms END, grp, error, dedup_id,
                own_tier, escalated_until_ms, home, home_key, home_sent_at_ms, home_deliveries, body, attributes
            FROM marked
        ) AS each
        ORDER BY n
    ), handed AS (
        INSERT INTO penstock.leased (
            lease, row, queue, key, tier, served_tier, sent_at_ms, deliveries, since_ms, ordinal, turn, deliveries_max,
            first_leased_ms, grp, error, dedup_id, own_tier, escalated_until_ms, home, home_key, home_sent_at_ms,
            home_deliveries, body, attributes
        )
        SELECT
            p_lease, n - 1, p_queue, key, tier, served_tier, sent_at_ms, deliveries, since_ms, ordinal, turn,
            deliveries_max, first_leased_ms, grp, error, dedup_id, own_tier, escalated_until_ms, home, home_key,
            home_sent_at_ms, home_deliveries, body, attributes
        FROM given
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
            string_agg(attributes, '') AS attributes,
            CASE WHEN bool_or(grp IS NOT NULL) THEN array_agg(coalesce(grp, '')) END AS groups,
            CASE WHEN bool_or(error IS NOT NULL) THEN array_agg(coalesce(error, '')) END AS errors,
            CASE WHEN bool_or(first_leased_ms IS NOT NULL)
                THEN string_agg(int8send(coalesce(first_leased_ms, p_now)), '') END AS first_leased_ms,
            CASE WHEN bool_or(home IS NOT NULL) THEN array_agg(home) END AS homes,
            array_agg(home_key) AS home_keys, array_agg(home_sent_at_ms) AS home_sent_at_ms,
            array_agg(home_deliveries) AS home_deliveries,
            array_agg(grp) FILTER (WHERE turn IS NOT NULL)
    INTO count, keys, tiers, deliveries, sent_at_ms, sizes, bodies, attribute_sizes, attributes, groups, errors,
        first_leased_ms, homes, home_keys, home_sent_at_ms, home_deliveries, v_tenants
    FROM given;
    IF v_tenants IS NOT NULL THEN
        PERFORM penstock.count_held(p_queue, p_now, v_tenants, 1);
    END IF;
END $$
