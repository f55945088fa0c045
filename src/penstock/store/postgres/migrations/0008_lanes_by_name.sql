-- By name in a dump, not by a number that another database has given to something else: so that a queue can be restored.
ALTER TABLE penstock.queue ALTER lanes TYPE regclass[] USING lanes::regclass[];
