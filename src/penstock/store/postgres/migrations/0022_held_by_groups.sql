-- How many messages each group of a standard queue holds. A group may have several rows, of which the sum counts. A lease or
-- a settlement takes all rows that no other transaction has locked, and leaves one. A new ten seconds give that row another
-- place in the index, so a search does not pass over its older versions while a snapshot is held open.
CREATE TABLE penstock.tenant_held (
    queue integer NOT NULL,
    grp bytea NOT NULL,
    stretch bigint NOT NULL,
    held bigint NOT NULL,
    -- How many binary digits that has, 0 if it is not above 0: so an index of those that hold much changes rarely.
    digits smallint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tenant_held_group ON penstock.tenant_held (queue, grp, stretch);
CREATE INDEX tenant_held_digits ON penstock.tenant_held (queue, digits) WHERE digits > 0;
INSERT INTO penstock.tenant_held (queue, grp, stretch, held, digits)
SELECT queue, grp, 0, count(*), length(ltrim(count(*)::bit(63)::text, '0'))
FROM penstock.leased WHERE turn IS NOT NULL GROUP BY queue, grp;
