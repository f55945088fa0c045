-- A vacuum pauses now and then. Beside a snapshot that is held open it can remove nothing, and begins again at once, with all
-- that is dead: without pauses it takes the cores and the cache from those who lease.
ALTER TABLE penstock.ready SET (autovacuum_vacuum_cost_delay = 2);
ALTER TABLE penstock.marked SET (autovacuum_vacuum_cost_delay = 2);
ALTER TABLE penstock.leased SET (autovacuum_vacuum_cost_delay = 2);
ALTER TABLE penstock.lease SET (autovacuum_vacuum_cost_delay = 2, toast.autovacuum_vacuum_cost_delay = 2);
