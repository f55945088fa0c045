-- Of a packed lease of several messages that were all sent to one tier: that tier, and the numbers between which they are. So a
-- message in it is found by an index. NULL of all other leases, and of those with numbers too far apart (`sql/span.sql`).
ALTER TABLE penstock.lease
    ADD COLUMN lane smallint,
    ADD COLUMN first_number bigint,
    ADD COLUMN last_number bigint;
CREATE INDEX lease_span ON penstock.lease ((queue + 0), lane, last_number, first_number) WHERE lane IS NOT NULL;
DROP INDEX penstock.lease_of_several;
CREATE INDEX lease_of_several ON penstock.lease ((queue + 0)) WHERE octet_length(keys) > 8 AND lane IS NULL;
