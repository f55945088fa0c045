-- What happened to messages by the time alone, for metrics: a row for each step, until the server that runs maintenance counts it.
CREATE TABLE penstock.tally (queue integer NOT NULL, lapsed bigint NOT NULL, promoted bigint NOT NULL);
