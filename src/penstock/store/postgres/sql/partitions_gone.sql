-- Partitions of deleted topics that may have records still.
SELECT number, generate_series(0, (settings::json ->> 'partitions')::integer - 1)
  FROM penstock.topic WHERE is_deleted AND NOT is_gone
 ORDER BY 1, 2
