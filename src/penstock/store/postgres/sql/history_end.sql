-- Where the history ends that can be told of: no transaction that has begun is below it any more.
SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 24), first_kept_offset, queue_range FROM penstock.moment
