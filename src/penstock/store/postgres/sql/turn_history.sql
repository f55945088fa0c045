-- Begin a new period of the history if the last one is long enough; answers with the one to write to.
CREATE OR REPLACE FUNCTION penstock.turn_history(p_now bigint, p_period_ms bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_moment penstock.moment;
BEGIN
    SELECT * INTO v_moment FROM penstock.moment;
    IF v_moment.period_began_at_ms > 0 AND p_now - v_moment.period_began_at_ms < p_period_ms THEN
        RETURN v_moment.period;
    END IF;
    SELECT * INTO v_moment FROM penstock.moment FOR UPDATE;
    IF v_moment.period_began_at_ms > 0 AND p_now - v_moment.period_began_at_ms >= p_period_ms THEN
        v_moment.period := v_moment.period + 1;
        EXECUTE format(
            'CREATE TABLE penstock.history_%s PARTITION OF penstock.history FOR VALUES IN (%s)',
            v_moment.period, v_moment.period
        );
        v_moment.period_began_at_ms := p_now;
    ELSIF v_moment.period_began_at_ms = 0 THEN
        v_moment.period_began_at_ms := p_now;
    END IF;
    UPDATE penstock.moment SET period = v_moment.period, period_began_at_ms = v_moment.period_began_at_ms;
    RETURN v_moment.period;
END $$
