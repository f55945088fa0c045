-- The tier that all messages of a lease were sent to, and their lowest and highest number; NULLs if they are of several tiers,
-- only one, or too far apart: whoever looks for a number looks at leases that end up to so far behind it.
CREATE OR REPLACE FUNCTION penstock.span(
    p_keys bytea, p_tiers bytea, OUT lane smallint, OUT first_number bigint, OUT last_number bigint
)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    c_span CONSTANT integer := 10000;
    v_count integer := octet_length(p_tiers);
BEGIN
    IF v_count < 2 OR p_tiers <> decode(repeat(encode(substring(p_tiers FOR 1), 'hex'), v_count), 'hex') THEN
        RETURN;
    END IF;
    -- Not all are in their order: what came back a moment ago may be behind what comes after it.
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
END $$
