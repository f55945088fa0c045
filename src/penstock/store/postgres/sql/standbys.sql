-- Those that receive the log of this database, and how far behind each is. A role without pg_monitor sees little of them.
SELECT coalesce(application_name, ''), coalesce(client_addr::text, ''), coalesce(state, ''), coalesce(sync_state, ''),
       CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn)::bigint END
  FROM pg_stat_replication
 ORDER BY application_name
