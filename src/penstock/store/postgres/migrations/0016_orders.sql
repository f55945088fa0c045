-- Indexes with the order that is asked for: what waits of a tier, what rests or is spent, what came from elsewhere.
DROP INDEX penstock.marked_aging;
CREATE INDEX marked_aging ON penstock.marked (queue, tier, since_ms, ordinal) WHERE state = 1;
CREATE INDEX marked_still ON penstock.marked (queue, since_ms, ordinal) WHERE state <> 1;
CREATE INDEX marked_moved ON penstock.marked (queue, ordinal) WHERE home IS NOT NULL;
CREATE INDEX marked_origin ON penstock.marked (queue, home) WHERE home IS NOT NULL;
