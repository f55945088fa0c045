-- A FIFO group that opens early is served up to the first of its messages that is leased.
CREATE INDEX leased_line ON penstock.leased (queue, grp, ordinal) WHERE grp IS NOT NULL AND turn IS NULL;
