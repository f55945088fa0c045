-- Begin a new period of the history if the last one is long enough; answers with the one to write to.
-- Runs with the rights of the owner, to whom the table of the period belongs, for every role that settles messages.
CREATE OR REPLACE FUNCTION penstock.turn_history(p_now bigint, p_period_ms bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
        -- Attached, and not made as a partition: that would wait for everybody who reads or writes the history, a backup of
        -- an hour say, and everybody who settles a message would wait behind it.
        EXECUTE format('CREATE TABLE penstock.history_%s (LIKE penstock.history INCLUDING ALL)', v_moment.period);
        EXECUTE format(
            'ALTER TABLE penstock.history ATTACH PARTITION penstock.history_%s FOR VALUES IN (%s)',
            v_moment.period, v_moment.period
        );
        v_moment.period_began_at_ms := p_now;
    ELSIF v_moment.period_began_at_ms = 0 THEN
        v_moment.period_began_at_ms := p_now;
    END IF;
    UPDATE penstock.moment SET period = v_moment.period, period_began_at_ms = v_moment.period_began_at_ms;
    RETURN v_moment.period;
END $$
