-- Topics, their record batches, and consumer groups; docs/design/streams-in-postgres.md says how they are used.

-- One row for all: changes of topics are made one after the other, and each has a version.
CREATE TABLE penstock.topic_state (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    version bigint NOT NULL DEFAULT 0,
    next_number integer NOT NULL DEFAULT 1,
    next_producer bigint NOT NULL DEFAULT 1
);
INSERT INTO penstock.topic_state DEFAULT VALUES;

-- A deleted topic keeps its row, so that servers learn of it: its number and id are never used again.
CREATE TABLE penstock.topic (
    number integer PRIMARY KEY,
    id bytea NOT NULL UNIQUE,
    name text COLLATE "C" NOT NULL,
    -- The name as metrics have it: dots and underscores are one.
    alike text COLLATE "C" NOT NULL,
    settings text NOT NULL,
    -- Of the change that made it what it is.
    version bigint NOT NULL,
    is_deleted boolean NOT NULL DEFAULT false,
    -- Whether records of a deleted topic are left.
    is_gone boolean NOT NULL DEFAULT false
);
CREATE UNIQUE INDEX topic_alike ON penstock.topic (alike) WHERE NOT is_deleted;
CREATE INDEX topic_version ON penstock.topic (version);

CREATE TABLE penstock.topic_partition (
    topic integer NOT NULL,
    partition integer NOT NULL,
    -- The offset of the next record, and how far a standby, where there is one, has all records.
    next bigint NOT NULL DEFAULT 0,
    confirmed bigint NOT NULL DEFAULT 0,
    -- Records below were trimmed, or were too old.
    start bigint NOT NULL DEFAULT 0,
    size_bytes bigint NOT NULL DEFAULT 0,
    -- The latest time of a record so far.
    latest_ms bigint NOT NULL DEFAULT -1,
    PRIMARY KEY (topic, partition)
) WITH (
    fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0
);

-- A record batch of Kafka, as it is served.
CREATE TABLE penstock.frame (
    topic integer NOT NULL,
    partition integer NOT NULL,
    base bigint NOT NULL,
    -- The offset after its last record.
    next bigint NOT NULL,
    arrived_at_ms bigint NOT NULL,
    -- The latest time of its records, and of all up to here: this never falls.
    time_ms bigint NOT NULL,
    latest_ms bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (topic, partition, base)
) WITH (
    autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.1, toast.autovacuum_vacuum_threshold = 20000,
    toast.autovacuum_vacuum_cost_delay = 0
);
-- Producers compress; what they have compressed does not get smaller.
ALTER TABLE penstock.frame ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE INDEX frame_latest ON penstock.frame (topic, partition, latest_ms, base);

-- The last five batches of an idempotent producer: first and last sequence, first and next offset, time of arrival of each.
CREATE TABLE penstock.topic_producer (
    topic integer NOT NULL,
    partition integer NOT NULL,
    producer bigint NOT NULL,
    epoch integer NOT NULL,
    last_at_ms bigint NOT NULL,
    sent bigint[] NOT NULL,
    PRIMARY KEY (topic, partition, producer)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0
);

-- Which server coordinates a group. Every claim has a higher epoch, also of a group that was forgotten, and only the last
-- one may write.
CREATE SEQUENCE penstock.group_epoch;
CREATE TABLE penstock.consumer_group (
    name text COLLATE "C" PRIMARY KEY,
    node text NOT NULL,
    incarnation bigint NOT NULL,
    epoch bigint NOT NULL,
    -- The last whole generation, as the log of groups has it; NULL for none.
    generation bytea
) WITH (fillfactor = 50);

CREATE TABLE penstock.committed_offset (
    group_name text COLLATE "C" NOT NULL,
    topic integer NOT NULL,
    partition integer NOT NULL,
    -- What is read next.
    next bigint NOT NULL,
    leader_epoch integer NOT NULL,
    -- As the client said it, in UTF-8: it may have a NUL, which no text has.
    metadata bytea NOT NULL,
    committed_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    PRIMARY KEY (group_name, topic, partition)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX committed_offset_topic ON penstock.committed_offset (topic);

-- Where Kafka clients reach a server; "" where it serves none.
ALTER TABLE penstock.node ADD COLUMN kafka text NOT NULL DEFAULT '';
