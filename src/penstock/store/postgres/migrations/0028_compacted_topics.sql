-- Compaction of topics; docs/design/streams-in-postgres.md says how.

-- How often batches were replaced by what compaction left of them. What a server has read before such a change, it reads again.
ALTER TABLE penstock.topic_partition ADD COLUMN rewrites bigint NOT NULL DEFAULT 0;

-- Up to where a compacted partition was cleaned, and when: an offset and a time for each cleaning, oldest first.
CREATE TABLE penstock.topic_cleaning (
    topic integer NOT NULL,
    partition integer NOT NULL,
    cleanings bigint[] NOT NULL,
    PRIMARY KEY (topic, partition)
);
