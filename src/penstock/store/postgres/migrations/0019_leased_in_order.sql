-- Of those that came from elsewhere, too: a page of everything in a queue goes by keys.
DROP INDEX penstock.leased_key;
CREATE INDEX leased_key ON penstock.leased (queue, key);
