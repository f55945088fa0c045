-- The tables of the history, one for each period: how large each is on the disk, about how many rows it has, and whether
-- it is written to. So may be the one before the last: by a server that has not heard of the newest yet. And whether a row
-- may be a pack of messages, and whether it was detached: then it is a table outside the history.
SELECT part.oid::regclass::text, (pg_total_relation_size(part.oid))::bigint, greatest(part.reltuples, 0)::bigint,
       period.number >= moment.period - 1,
       EXISTS (SELECT 1 FROM pg_attribute AS a WHERE a.attrelid = part.oid AND a.attname = 'packed' AND NOT a.attisdropped),
       NOT part.relispartition
  FROM penstock.moment AS moment, pg_class AS whole
  JOIN pg_class AS part ON part.relnamespace = whole.relnamespace AND part.relkind = 'r'
 CROSS JOIN LATERAL (SELECT substring(part.relname FROM '^history_([0-9]+)$')::integer AS number) AS period
 WHERE whole.oid = 'penstock.history'::regclass AND period.number IS NOT NULL
 ORDER BY period.number
