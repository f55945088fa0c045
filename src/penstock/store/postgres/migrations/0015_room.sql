-- How many messages more a queue with a size may hold, in several slots: the sum over them and the messages there are is
-- the size. A send takes from a slot that no other transaction holds, and whatever settles messages gives to one. Only
-- slot 0 is ever below zero, when a size was lowered.
CREATE TABLE penstock.room (
    queue integer NOT NULL,
    slot smallint NOT NULL,
    free bigint NOT NULL,
    size bigint NOT NULL,
    PRIMARY KEY (queue, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
INSERT INTO penstock.room (queue, slot, free, size)
SELECT q.number, slot, CASE slot WHEN 0 THEN q.size - q.live ELSE 0 END, q.size
FROM (
    SELECT number, (settings::json ->> 'size_max')::bigint AS size,
        (SELECT count(*) FROM penstock.ready AS r WHERE r.queue = number)
            + (SELECT count(*) FROM penstock.marked AS m WHERE m.queue = number)
            + (SELECT coalesce(sum(held), 0)::bigint FROM penstock.lease AS e WHERE e.queue = number) AS live
    FROM penstock.queue WHERE deleted_at_ms IS NULL
) AS q CROSS JOIN generate_series(0, 7) AS slot
WHERE q.size > 0;

-- These are told whether the queue has a size.
DROP FUNCTION IF EXISTS penstock.ack(
    integer, bigint, bigint, bigint[], bigint[], integer[], boolean, boolean, smallint, integer, bigint
);
DROP FUNCTION IF EXISTS penstock.ack_lease(
    integer, bigint, bigint, bigint, bigint, integer, smallint, integer, bigint
);
DROP FUNCTION IF EXISTS penstock.check_room(integer, bigint, bigint);
