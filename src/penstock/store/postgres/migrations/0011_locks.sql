-- Locks that only roles with rights in the schema can take; any role that may connect can take an advisory lock.

-- A row for each queue, for what one transaction at a time may do in it.
CREATE TABLE penstock.queue_lock (queue integer PRIMARY KEY);
INSERT INTO penstock.queue_lock (queue) SELECT number FROM penstock.queue WHERE deleted_at_ms IS NULL;

-- The servers that are there: each by the connection on which it listens. One whose connection has ended is gone.
CREATE TABLE penstock.server (
    pid integer PRIMARY KEY,
    role name NOT NULL,
    began_at timestamptz NOT NULL,
    -- It runs the maintenance for all of them.
    is_leader boolean NOT NULL DEFAULT false
);
