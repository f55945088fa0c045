-- The API keys of all servers of this database, in one row. The row stays when the last key is revoked.
CREATE TABLE penstock.keyring (
    id integer PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    revision bigint NOT NULL,
    content bytea NOT NULL
);
