-- Between which numbers the messages of a lease are: with their tier if all were sent to one, and else for each tier. NULLs if it is
-- only one message, or if numbers of a tier are too far apart: a search for a number looks at leases that end up to this far
-- behind it.
CREATE OR REPLACE FUNCTION penstock.span(
    p_keys bytea, p_tiers bytea, OUT lane smallint, OUT first_number bigint, OUT last_number bigint,
    OUT firsts bigint[], OUT lasts bigint[]
)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    c_span CONSTANT integer := 10000;
    v_count integer := octet_length(p_tiers);
BEGIN
    IF v_count < 2 THEN
        RETURN;
    END IF;
    -- Not all are in their order: what came back a moment ago may be behind what comes after it.
    IF p_tiers = decode(repeat(encode(substring(p_tiers FOR 1), 'hex'), v_count), 'hex') THEN
        SELECT min(number), max(number) INTO first_number, last_number FROM (
            SELECT ('x' || encode(substring(p_keys FROM n * 8 + 1 FOR 8), 'hex'))::bit(64)::bigint >> 3 AS number
            FROM generate_series(0, v_count - 1) AS n
        ) AS every;
        IF last_number - first_number < c_span THEN
            lane := get_byte(p_tiers, 0);
        ELSE
            first_number := NULL;
            last_number := NULL;
        END IF;
        RETURN;
    END IF;
    SELECT
        ARRAY[
            min(number) FILTER (WHERE tier = 0), min(number) FILTER (WHERE tier = 1), min(number) FILTER (WHERE tier = 2),
            min(number) FILTER (WHERE tier = 3), min(number) FILTER (WHERE tier = 4)
        ], ARRAY[
            max(number) FILTER (WHERE tier = 0), max(number) FILTER (WHERE tier = 1), max(number) FILTER (WHERE tier = 2),
            max(number) FILTER (WHERE tier = 3), max(number) FILTER (WHERE tier = 4)
        ]
    INTO firsts, lasts
    FROM (
        SELECT get_byte(p_tiers, n) AS tier,
            ('x' || encode(substring(p_keys FROM n * 8 + 1 FOR 8), 'hex'))::bit(64)::bigint >> 3 AS number
        FROM generate_series(0, v_count - 1) AS n
    ) AS every;
    IF EXISTS (SELECT 1 FROM unnest(firsts, lasts) AS tier (first, last) WHERE last - first >= c_span) THEN
        firsts := NULL;
        lasts := NULL;
    END IF;
END $$
