-- Where the history ends once every transaction that has begun is over.
SELECT 0, pg_snapshot_xmax(pg_current_snapshot())::text::bigint << 24
