-- How many binary digits a count has, 0 if it is not above 0.
CREATE OR REPLACE FUNCTION penstock.digits(p_count bigint) RETURNS smallint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_count > 0 THEN length(ltrim(p_count::bit(63)::text, '0')) ELSE 0 END::smallint
$$
