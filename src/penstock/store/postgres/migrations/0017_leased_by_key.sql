-- Leased messages, by their keys: those with a row of their own, and those in leases of one. Leases of several
-- have no such index, which would have an entry for each message; but there are fewer of them, and they are found apart.
CREATE INDEX leased_key ON penstock.leased (queue, key) WHERE home IS NULL;
CREATE INDEX leased_home ON penstock.leased (home, home_key) WHERE home IS NOT NULL;
CREATE INDEX lease_of_one ON penstock.lease ((int4send(queue) || keys)) WHERE octet_length(keys) = 8;
CREATE INDEX lease_of_several ON penstock.lease ((queue + 0)) WHERE octet_length(keys) > 8;
