-- The time of the database, what makes its commits durable, and how many standbys confirm them.
--
-- A role without pg_monitor sees that there are connections of standbys, and not which are synchronous: then the
-- last column is NULL, unless there are none at all.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       current_setting('fsync') = 'on',
       current_setting('full_page_writes') = 'on',
       current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names'),
       CASE WHEN bool_or(sync_state IS NULL) THEN NULL
            ELSE (count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')))::integer END
  FROM pg_stat_replication
