-- How long messages of each group of a standard queue were held lately, halved each minute; '' is all groups together.
-- A group may have several rows: a transaction that adds to it takes one that no other has locked, or makes one.
CREATE TABLE penstock.tenant (
    queue integer NOT NULL,
    grp bytea NOT NULL,
    taken_ms double precision NOT NULL,
    -- The minute up to which it is halved.
    minute bigint NOT NULL,
    -- It took more than its share when this was written; only such a group can be noisy by its time.
    is_loud boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tenant_group ON penstock.tenant (queue, grp);
CREATE INDEX tenant_loud ON penstock.tenant (queue, grp) WHERE is_loud;

-- The most urgent message of a FIFO group that waits, of which there may be very many.
CREATE INDEX marked_line_tier ON penstock.marked (queue, grp, tier) WHERE state = 1 AND grp IS NOT NULL AND turn IS NULL;

-- The messages of one group in the order in which they are served, and its last turn. The index of all turns has the same
-- order, but a noisy group may be far behind everybody else there.
CREATE INDEX marked_tenant ON penstock.marked (queue, grp, tier, turn, since_ms, ordinal) WHERE turn IS NOT NULL;
DROP INDEX penstock.marked_last_turn;
