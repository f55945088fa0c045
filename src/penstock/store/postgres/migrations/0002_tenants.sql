-- How many messages each group of a standard queue holds. Messages without a group, and those of FIFO queues, are not in it.
CREATE INDEX leased_tenant ON penstock.leased (queue, grp) WHERE turn IS NOT NULL;
