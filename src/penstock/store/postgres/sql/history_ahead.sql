-- Whether the history has rows of transactions that no server but another can have had.
SELECT EXISTS (
    SELECT 1 FROM penstock.history WHERE at_offset >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint << 24
)
