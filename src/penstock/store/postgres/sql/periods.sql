-- The tables of the history, one for each period, and how large each is on the disk.
SELECT part.oid::regclass::text, (pg_total_relation_size(part.oid))::bigint, greatest(part.reltuples, 0)::bigint,
       substring(pg_get_expr(part.relpartbound, part.oid) FROM '\d+')::integer = moment.period
  FROM penstock.moment AS moment, pg_inherits
  JOIN pg_class AS part ON part.oid = pg_inherits.inhrelid
 WHERE pg_inherits.inhparent = 'penstock.history'::regclass
 ORDER BY part.oid
