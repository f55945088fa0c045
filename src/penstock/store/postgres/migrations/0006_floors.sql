-- The floors of the turns in which groups of standard queues are served: a sequence for each tier, behind the lanes.
DO $$
DECLARE
    v_queue record;
    v_floor text;
    v_role regrole;
BEGIN
    FOR v_queue IN
        SELECT number, lanes FROM penstock.queue
        WHERE deleted_at_ms IS NULL AND (settings::json ->> 'is_fifo')::boolean IS NOT TRUE
    LOOP
        FOR v_tier IN 0 .. 4 LOOP
            v_floor := format('penstock.floor_%s_%s', v_queue.number, v_tier);
            EXECUTE format('CREATE SEQUENCE %s MINVALUE 0', v_floor);
            FOR v_role IN
                SELECT DISTINCT given.grantee FROM pg_class, aclexplode(relacl) AS given
                WHERE pg_class.oid = v_queue.lanes[1] AND given.grantee <> 0 AND given.privilege_type = 'UPDATE'
            LOOP
                EXECUTE format('GRANT USAGE, SELECT, UPDATE ON SEQUENCE %s TO %s', v_floor, v_role);
            END LOOP;
            UPDATE penstock.queue SET lanes = lanes || v_floor::regclass::oid WHERE number = v_queue.number;
        END LOOP;
    END LOOP;
END $$;

-- Messages of a group that do not wait now, and what a group holds by lease: to find out that a group has none.
CREATE INDEX marked_idle ON penstock.marked (queue, grp) WHERE turn IS NOT NULL AND state <> 1;
CREATE INDEX leased_holder ON penstock.leased (queue, grp, lease) WHERE turn IS NOT NULL;
DROP INDEX penstock.leased_tenant;

-- These are told where to begin, and how far to look.
DROP FUNCTION IF EXISTS penstock.advance(integer, bigint, bigint, integer, bigint[], boolean, integer);
DROP FUNCTION IF EXISTS penstock.age(integer, bigint, smallint, bigint, integer);
DROP FUNCTION IF EXISTS penstock.expire(integer, bigint, bigint, bigint, integer, boolean, smallint, integer);
DROP FUNCTION IF EXISTS penstock.next_ms(integer, bigint, bigint[]);
DROP FUNCTION IF EXISTS penstock.wakes_at_ms(integer);
