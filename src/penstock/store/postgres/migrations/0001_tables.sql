-- What the store remembers. docs/design/postgres-store.md draws it and says why each index is there.

-- One row for all: the newest time any server has seen, and where the history begins and is written to.
CREATE TABLE penstock.moment (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    at_ms bigint NOT NULL DEFAULT 0,
    period integer NOT NULL DEFAULT 1,
    period_began_at_ms bigint NOT NULL DEFAULT 0,
    first_kept_offset bigint NOT NULL DEFAULT 0
);
INSERT INTO penstock.moment DEFAULT VALUES;

CREATE SEQUENCE penstock.queue_number AS integer;
CREATE SEQUENCE penstock.queue_version;
CREATE SEQUENCE penstock.lease_number;
-- Rises with every message that has something of its own: the order inside a group.
CREATE SEQUENCE penstock.ordinal;
-- Rises with every turn of a group that keeps its order.
CREATE SEQUENCE penstock.turn;

-- Tells rows of the history apart that one transaction wrote; each session takes a thousand at a time.
CREATE SEQUENCE penstock.told AS integer MINVALUE 0 MAXVALUE 16777215 CYCLE CACHE 1000;

-- A deleted queue keeps its row: its number is never used again, and its history names it.
CREATE TABLE penstock.queue (
    number integer PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    settings text NOT NULL,
    -- Drawn again with every change, so that a process with old settings is told so.
    version bigint NOT NULL,
    -- The name of the queue it buries in.
    grave text COLLATE "C" NOT NULL,
    -- A sequence for each tier: the numbers of its messages.
    lanes oid[] NOT NULL,
    created_at_ms bigint NOT NULL,
    deleted_at_ms bigint
);
CREATE UNIQUE INDEX queue_name ON penstock.queue (name) WHERE deleted_at_ms IS NULL;
CREATE INDEX queue_grave ON penstock.queue (grave) WHERE deleted_at_ms IS NULL;

-- Messages nothing has happened to, in the order of their numbers.
CREATE TABLE penstock.ready (
    queue integer NOT NULL,
    tier smallint NOT NULL,
    number bigint NOT NULL,
    sent_at_ms bigint NOT NULL,
    body bytea NOT NULL,
    attributes bytea,
    PRIMARY KEY (queue, tier, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE penstock.ready ALTER body SET STORAGE EXTERNAL, ALTER attributes SET STORAGE EXTERNAL;

-- Messages that something has happened to, or that have something of their own, and that are not leased.
CREATE TABLE penstock.marked (
    queue integer NOT NULL,
    -- number << 3 | lane, in this queue.
    key bigint NOT NULL,
    tier smallint NOT NULL,
    -- 1 waiting, 2 resting, 4 spent: the numbers of core/queue/rows.py.
    state smallint NOT NULL,
    -- When it joined its tier, or was spent.
    since_ms bigint NOT NULL,
    ordinal bigint NOT NULL,
    -- On a standard queue, the turn of its group in which it is served; NULL without a group, and on a FIFO queue.
    turn bigint,
    -- When it wakes, if it rests; of a spent one, its place in the order of burial.
    visible_at_ms bigint NOT NULL,
    sent_at_ms bigint NOT NULL,
    deliveries integer NOT NULL,
    deliveries_max integer NOT NULL,
    first_leased_ms bigint NOT NULL,
    last_leased_ms bigint NOT NULL,
    served_tier smallint NOT NULL,
    grp bytea,
    error text,
    -- In the scope `live` only: it is free when the message is settled.
    dedup_id bytea,
    -- Of an escalated message, the tier it falls back to and when; 0 is never.
    own_tier smallint,
    escalated_until_ms bigint,
    -- Of a moved message, its identity and its life before it came here.
    home integer,
    home_key bigint,
    home_sent_at_ms bigint,
    home_deliveries integer,
    -- The lease that held it last, as long as it was not leased since: for receipts that outlive their lease.
    lease bigint,
    token bigint,
    lease_row integer,
    body bytea NOT NULL,
    attributes bytea,
    PRIMARY KEY (queue, key)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE penstock.marked ALTER body SET STORAGE EXTERNAL, ALTER attributes SET STORAGE EXTERNAL;
CREATE INDEX marked_plain ON penstock.marked (queue, tier, since_ms, ordinal) WHERE state = 1 AND grp IS NULL;
CREATE INDEX marked_turn ON penstock.marked (queue, tier, turn, since_ms, ordinal) WHERE state = 1 AND turn IS NOT NULL;
CREATE INDEX marked_last_turn ON penstock.marked (queue, grp, tier, turn) WHERE turn IS NOT NULL;
CREATE INDEX marked_line ON penstock.marked (queue, grp, ordinal) WHERE grp IS NOT NULL AND turn IS NULL;
CREATE INDEX marked_aging ON penstock.marked (queue, tier, since_ms) WHERE state = 1;
CREATE INDEX marked_resting ON penstock.marked (queue, visible_at_ms) WHERE state = 2;
CREATE INDEX marked_spent ON penstock.marked (queue, visible_at_ms) WHERE state = 4;
CREATE INDEX marked_revert ON penstock.marked (queue, escalated_until_ms) WHERE escalated_until_ms > 0;
CREATE INDEX marked_home ON penstock.marked (home, home_key) WHERE home IS NOT NULL;
CREATE INDEX marked_late ON penstock.marked (lease, lease_row) WHERE lease IS NOT NULL;
CREATE INDEX marked_age ON penstock.marked (queue, sent_at_ms);

-- Groups of FIFO queues that have messages: how many of them are leased, and the tier whose turn serves it.
CREATE TABLE penstock.line (
    queue integer NOT NULL,
    grp bytea NOT NULL,
    held integer NOT NULL DEFAULT 0,
    open_tier smallint,
    turn bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, grp)
);
CREATE INDEX line_open ON penstock.line (queue, open_tier, turn) WHERE open_tier IS NOT NULL;

-- One row for each lease; a verb that changes what is in a lease locks its row first.
CREATE TABLE penstock.lease (
    number bigint PRIMARY KEY,
    queue integer NOT NULL,
    token bigint NOT NULL,
    held integer NOT NULL,
    leased_at_ms bigint NOT NULL,
    lease_ms bigint NOT NULL,
    until_ms bigint NOT NULL,
    -- The first end of any message in it: some may have been extended, and others not.
    wakes_at_ms bigint NOT NULL,
    has_own_ends boolean NOT NULL DEFAULT false,
    -- Restarted because no server was there to extend it; once, so that it ends for sure.
    is_rearmed boolean NOT NULL DEFAULT false
);
CREATE INDEX lease_end ON penstock.lease (queue, wakes_at_ms);

-- Leased messages. What is NULL is as it is for a message nothing had happened to.
CREATE TABLE penstock.leased (
    lease bigint NOT NULL,
    row integer NOT NULL,
    queue integer NOT NULL,
    key bigint NOT NULL,
    tier smallint NOT NULL,
    served_tier smallint NOT NULL,
    sent_at_ms bigint NOT NULL,
    deliveries integer NOT NULL,
    -- Its own end, if it is not that of its lease, and how long it was extended by.
    until_ms bigint,
    lease_ms bigint,
    since_ms bigint,
    ordinal bigint,
    turn bigint,
    deliveries_max integer,
    first_leased_ms bigint,
    grp bytea,
    error text,
    dedup_id bytea,
    own_tier smallint,
    escalated_until_ms bigint,
    home integer,
    home_key bigint,
    home_sent_at_ms bigint,
    home_deliveries integer,
    body bytea NOT NULL,
    attributes bytea,
    PRIMARY KEY (lease, row)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE penstock.leased ALTER body SET STORAGE EXTERNAL, ALTER attributes SET STORAGE EXTERNAL;

-- Ids that keep a second message away. Uniqueness cannot span the tables of messages, so it is here.
CREATE TABLE penstock.dedup (
    queue integer NOT NULL,
    id bytea NOT NULL,
    key bigint NOT NULL,
    -- NULL until its message is settled.
    until_ms bigint,
    PRIMARY KEY (queue, id)
);
CREATE INDEX dedup_until ON penstock.dedup (until_ms) WHERE until_ms IS NOT NULL;

-- Senders that may repeat themselves. Their numbers are of 64 bits without a sign, and stand here less 2^63.
CREATE TABLE penstock.sender (
    queue integer NOT NULL,
    id bigint NOT NULL,
    epoch bigint NOT NULL,
    floor bigint,
    seen_at_ms bigint NOT NULL,
    PRIMARY KEY (queue, id)
);
CREATE INDEX sender_seen ON penstock.sender (queue, seen_at_ms);
CREATE TABLE penstock.sent (
    queue integer NOT NULL,
    sender bigint NOT NULL,
    sequence bigint NOT NULL,
    -- The key of each draft, 8 bytes each.
    keys bytea NOT NULL,
    PRIMARY KEY (queue, sender, sequence)
);

-- What was answered to a call whose connection may break before the answer arrives.
CREATE TABLE penstock.operation (
    id bigint PRIMARY KEY,
    at_ms bigint NOT NULL,
    answer bytea NOT NULL
);
CREATE INDEX operation_age ON penstock.operation (at_ms);

CREATE TABLE penstock.escalation (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue integer NOT NULL,
    at_ms bigint NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    tier smallint NOT NULL,
    until_ms bigint NOT NULL,
    ids text[] NOT NULL
);
CREATE INDEX escalation_queue ON penstock.escalation (queue, number);

-- A row for each settled message, in the order of transactions. Periods are dropped whole.
CREATE TABLE penstock.history (
    period integer NOT NULL,
    -- The transaction << 24 | the row in it: what is below the oldest running transaction is complete.
    at_offset bigint NOT NULL,
    queue integer NOT NULL,
    key bigint NOT NULL,
    home integer,
    home_key bigint,
    sent_at_ms bigint NOT NULL,
    first_leased_ms bigint NOT NULL,
    last_leased_ms bigint NOT NULL,
    settled_at_ms bigint NOT NULL,
    deliveries integer NOT NULL,
    tier smallint NOT NULL,
    ending smallint NOT NULL,
    grp bytea,
    error text,
    body bytea,
    attributes bytea
) PARTITION BY LIST (period);
CREATE INDEX history_offset ON penstock.history (at_offset);
CREATE TABLE penstock.history_1 PARTITION OF penstock.history FOR VALUES IN (1);
