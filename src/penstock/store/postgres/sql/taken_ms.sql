-- For how long messages of a group were held lately, as of a minute; '' is all groups together.
-- PostgreSQL refuses numbers that are too small, so after an hour of halving it halves no further: nothing is left by then.
CREATE OR REPLACE FUNCTION penstock.taken_ms(p_queue integer, p_group bytea, p_minute bigint) RETURNS double precision
LANGUAGE plpgsql AS $$
DECLARE
    v_taken double precision;
BEGIN
    SELECT sum(taken_ms * power(2::double precision, greatest(-60, least(0, minute - p_minute)))) INTO v_taken
    FROM penstock.tenant WHERE queue = p_queue AND grp = p_group;
    RETURN coalesce(v_taken, 0);
END $$
