-- Coordinate a group, unless a server that is heard does. Answers with the epoch and the last generation, and with who
-- coordinates it: of another server without an epoch. Answers with nothing if there are as many groups as may be.
CREATE OR REPLACE FUNCTION penstock.claim_group(
    p_name text, p_node text, p_incarnation bigint, p_lost_ms bigint, p_takes_over boolean, p_most bigint,
    OUT v_epoch bigint, OUT v_node text, OUT v_generation bytea
)
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM penstock.consumer_group WHERE name = p_name)
            AND (SELECT count(*) FROM penstock.consumer_group) >= p_most THEN
        RETURN;
    END IF;
    INSERT INTO penstock.consumer_group AS known (name, node, incarnation, epoch)
    VALUES (p_name, p_node, p_incarnation, nextval('penstock.group_epoch'))
    ON CONFLICT (name) DO UPDATE SET node = excluded.node, incarnation = excluded.incarnation, epoch = excluded.epoch
    -- A process that has the name of its coordinator has come after it.
    WHERE p_takes_over OR known.node = excluded.node OR NOT EXISTS (
        SELECT 1 FROM penstock.node
        WHERE node.name = known.node AND node.incarnation = known.incarnation AND node.state = 'serving'
            AND node.beat_at > clock_timestamp() - make_interval(secs => p_lost_ms / 1000.0)
    )
    RETURNING epoch, node, generation INTO v_epoch, v_node, v_generation;
    IF NOT FOUND THEN
        SELECT node INTO v_node FROM penstock.consumer_group WHERE name = p_name;
    END IF;
END $$
