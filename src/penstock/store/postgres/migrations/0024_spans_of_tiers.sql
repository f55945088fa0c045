-- Of a packed lease of messages of several tiers: between which numbers of each tier they are, so that a message in it is found by
-- an index, too. NULL of all other leases, and of those with numbers too far apart (`sql/span.sql`).
ALTER TABLE penstock.lease ADD COLUMN firsts bigint[], ADD COLUMN lasts bigint[];
CREATE INDEX lease_span_0 ON penstock.lease ((queue + 0), (lasts[1]), (firsts[1])) WHERE lasts[1] IS NOT NULL;
CREATE INDEX lease_span_1 ON penstock.lease ((queue + 0), (lasts[2]), (firsts[2])) WHERE lasts[2] IS NOT NULL;
CREATE INDEX lease_span_2 ON penstock.lease ((queue + 0), (lasts[3]), (firsts[3])) WHERE lasts[3] IS NOT NULL;
CREATE INDEX lease_span_3 ON penstock.lease ((queue + 0), (lasts[4]), (firsts[4])) WHERE lasts[4] IS NOT NULL;
CREATE INDEX lease_span_4 ON penstock.lease ((queue + 0), (lasts[5]), (firsts[5])) WHERE lasts[5] IS NOT NULL;
DROP INDEX penstock.lease_of_several;
CREATE INDEX lease_of_several ON penstock.lease ((queue + 0)) WHERE octet_length(keys) > 8 AND lane IS NULL AND lasts IS NULL;
