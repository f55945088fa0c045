-- Queues that are being emptied, in turns of a transaction each: a purge, or what a deletion leaves to be removed.
CREATE TABLE penstock.purge (
    id bigint PRIMARY KEY,
    queue integer NOT NULL,
    is_fifo boolean NOT NULL,
    history smallint NOT NULL,
    -- 4 purged, 6 deleted: core/queue/settlements.py.
    ending smallint NOT NULL,
    -- The number that was drawn last of each tier: what was sent later stays.
    lasts bigint[] NOT NULL,
    -- Where the next turn begins to look: numbers of the five tiers, a key of marked messages, an end of leases.
    froms bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0}',
    settled bigint NOT NULL DEFAULT 0,
    turned_at_ms bigint NOT NULL,
    ended_at_ms bigint
);
CREATE INDEX purge_left ON penstock.purge (turned_at_ms) WHERE ended_at_ms IS NULL;
DROP FUNCTION IF EXISTS penstock.purge(integer, bigint, bigint, smallint, integer);
DROP FUNCTION IF EXISTS penstock.settle_all(integer, bigint, smallint, smallint, integer);
DROP FUNCTION IF EXISTS penstock.delete_queue(integer, bigint, bigint, smallint, integer);
