-- Who changed what and when, and who was not let in: each entry is a JSON object. Entries are only added.
CREATE TABLE penstock.audit_log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token bigint NOT NULL UNIQUE,
    at_ms bigint NOT NULL,
    entry text NOT NULL
);
CREATE INDEX audit_log_at ON penstock.audit_log (at_ms);
