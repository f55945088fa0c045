-- The servers of a database, those that have ended among them, and for how long each has not been heard.
SELECT name, address, version, state, started_at_ms,
       (extract(epoch FROM clock_timestamp() - beat_at) * 1000)::bigint, is_to_drain
  FROM penstock.node
 ORDER BY name
