-- Redrives that run or have ended. The server that runs one writes its number, and a heartbeat every second.
CREATE TABLE penstock.redrive (
    id text PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    ordered json NOT NULL,
    state text NOT NULL,
    progress json NOT NULL,
    started_at_ms bigint NOT NULL,
    ended_at_ms bigint,
    runner bigint,
    heard_at_ms bigint NOT NULL,
    is_to_stop boolean NOT NULL DEFAULT false
);
CREATE INDEX redrive_queue ON penstock.redrive (queue, started_at_ms);
CREATE INDEX redrive_running ON penstock.redrive (heard_at_ms) WHERE ended_at_ms IS NULL;
CREATE INDEX redrive_ended ON penstock.redrive (ended_at_ms) WHERE ended_at_ms IS NOT NULL;
