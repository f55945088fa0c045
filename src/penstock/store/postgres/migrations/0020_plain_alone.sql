-- `state + 0`, in this index and where it is asked for: with `state = 1` the index of all that waits in a tier looks as good
-- for the ungrouped, and to find them there is to pass over all messages of groups.
DROP INDEX penstock.marked_plain;
CREATE INDEX marked_plain ON penstock.marked (queue, tier, since_ms, ordinal) WHERE state + 0 = 1 AND grp IS NULL;
