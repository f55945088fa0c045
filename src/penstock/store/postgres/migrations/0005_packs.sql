-- A row of the history may stand for many messages that were acked together: decision 26.
ALTER TABLE penstock.history
    -- How many messages; NULL is one, and the rest of these is NULL then.
    ADD COLUMN packed integer,
    -- 8 bytes for each: its key, and when it was sent.
    ADD COLUMN keys bytea,
    ADD COLUMN sent_ats_ms bytea,
    -- 4 bytes for each: how much of `body` and of `attributes` is its own. NULL where there are none.
    ADD COLUMN body_sizes bytea,
    ADD COLUMN attribute_sizes bytea;
ALTER TABLE penstock.history
    ALTER keys SET STORAGE EXTERNAL, ALTER sent_ats_ms SET STORAGE EXTERNAL,
    ALTER body_sizes SET STORAGE EXTERNAL, ALTER attribute_sizes SET STORAGE EXTERNAL;

-- The messages of a lease that nothing had happened to before, in the same form; NULL if they are in `leased`.
ALTER TABLE penstock.lease
    ADD COLUMN keys bytea,
    ADD COLUMN sent_ats_ms bytea,
    ADD COLUMN body_sizes bytea,
    ADD COLUMN bodies bytea,
    ADD COLUMN attribute_sizes bytea,
    ADD COLUMN attributes bytea;
ALTER TABLE penstock.lease
    ALTER keys SET STORAGE EXTERNAL, ALTER sent_ats_ms SET STORAGE EXTERNAL, ALTER body_sizes SET STORAGE EXTERNAL,
    ALTER bodies SET STORAGE EXTERNAL, ALTER attribute_sizes SET STORAGE EXTERNAL, ALTER attributes SET STORAGE EXTERNAL;
-- A lease of a few messages is one row; only what is larger than a page goes elsewhere, in pieces.
ALTER TABLE penstock.lease SET (
    toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 20000, toast.autovacuum_vacuum_cost_delay = 0
);

-- These take one argument less since.
DROP FUNCTION IF EXISTS penstock.hand_out_plain(
    integer, bigint, integer, integer, bigint, smallint[], integer[], bigint[]
);
DROP FUNCTION IF EXISTS penstock.lease_plain(integer, bigint, integer, bigint, integer[], smallint[], bigint[]);
DROP FUNCTION IF EXISTS penstock.lease_more(
    integer, bigint, integer, bigint, smallint[], bigint[], integer, bytea, bytea, bytea, bytea, bytea, bytea, bytea, bytea
);
