-- Which numbers the queues of this database have, so that those of several databases that are used as one differ: from
-- queue_range << 24 on. A database that was never one of several has all numbers, and is bound to none.
ALTER TABLE penstock.moment ADD COLUMN queue_range integer NOT NULL DEFAULT 0;
ALTER TABLE penstock.moment ADD COLUMN is_range_claimed boolean NOT NULL DEFAULT false;
