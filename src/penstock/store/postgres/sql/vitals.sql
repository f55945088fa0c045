-- How much dead weight the tables of a schema carry, and who keeps it from being cleared away.
--
-- VACUUM clears nothing that the oldest snapshot could still see. That snapshot is of a backend, of a replication
-- slot, or of a prepared transaction; the oldest of all is named, with its process if it has one. Of backends only
-- those of this database count, and those without one, as for ordinary tables only they hold VACUUM up.
WITH holder AS (
    SELECT backend_xmin AS xmin, pid, coalesce(state, backend_type) AS kind,
           extract(epoch FROM clock_timestamp() - xact_start)::float8 AS held_s
      FROM pg_stat_activity
     WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND (datname = current_database() OR datname IS NULL)
     UNION ALL
    SELECT xmin, active_pid, 'replication slot ' || slot_name, NULL
      FROM pg_replication_slots
     WHERE xmin IS NOT NULL
     UNION ALL
    SELECT transaction, NULL, 'prepared transaction ' || gid, extract(epoch FROM clock_timestamp() - prepared)::float8
      FROM pg_prepared_xacts
     WHERE database = current_database()
), oldest AS (
    SELECT age(xmin) AS transactions, pid, kind, held_s
      FROM holder
     ORDER BY age(xmin) DESC, held_s DESC NULLS LAST
     LIMIT 1
)
SELECT weight.tables, weight.live, weight.dead, oldest.transactions, oldest.pid, oldest.kind, oldest.held_s
  FROM (SELECT coalesce(array_agg(relname::text ORDER BY relname), '{}') AS tables,
               coalesce(array_agg(n_live_tup ORDER BY relname), '{}') AS live,
               coalesce(array_agg(n_dead_tup ORDER BY relname), '{}') AS dead
          FROM pg_stat_user_tables
         WHERE schemaname = %(schema)s) AS weight
  LEFT JOIN oldest ON true
