-- Of a group that keeps its order, an ordinal that none of its messages is before.
ALTER TABLE penstock.line ADD COLUMN front bigint NOT NULL DEFAULT 0;

-- The most urgent message of a group is looked for from its front on.
DROP INDEX penstock.marked_line_tier;
CREATE INDEX marked_line_tier ON penstock.marked (queue, grp, tier, ordinal)
WHERE state = 1 AND grp IS NOT NULL AND turn IS NULL;
