-- The tables of the history, one for each period: how large each is on the disk, about how many rows it has, and whether
-- it is written to. So may be the one before the last: by a server that has not heard of the newest yet. And whether a row
-- may be a pack of messages.
SELECT part.oid::regclass::text, (pg_total_relation_size(part.oid))::bigint, greatest(part.reltuples, 0)::bigint,
       substring(pg_get_expr(part.relpartbound, part.oid) FROM '[0-9]+')::integer >= moment.period - 1,
       EXISTS (SELECT 1 FROM pg_attribute AS a WHERE a.attrelid = part.oid AND a.attname = 'packed' AND NOT a.attisdropped)
  FROM penstock.moment AS moment, pg_inherits
  JOIN pg_class AS part ON part.oid = pg_inherits.inhrelid
 WHERE pg_inherits.inhparent = 'penstock.history'::regclass
 ORDER BY substring(pg_get_expr(part.relpartbound, part.oid) FROM '[0-9]+')::integer
