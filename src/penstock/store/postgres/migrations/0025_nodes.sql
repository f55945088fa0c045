-- The servers that serve from here, for people and for each other: who is there, where, and what it does.
CREATE TABLE penstock.node (
    name text PRIMARY KEY,
    -- Of the process: a later one of the same name has another.
    incarnation bigint NOT NULL,
    address text NOT NULL,
    version text NOT NULL,
    -- serving, draining or stopped
    state text NOT NULL,
    started_at_ms bigint NOT NULL,
    -- When it was last heard, by the clock of the database.
    beat_at timestamptz NOT NULL,
    -- Whether an operator wants it to take no new work.
    is_to_drain boolean NOT NULL DEFAULT false
);
