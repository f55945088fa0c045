-- How many messages each group of a standard queue holds. A group may have several rows, of which the sum counts: whoever
-- leases or lets go takes all that nobody else is at, and leaves one. In another stretch of ten seconds that is one at another
-- place of the index, so with a snapshot held open it is not looked for among all that it was before.
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
