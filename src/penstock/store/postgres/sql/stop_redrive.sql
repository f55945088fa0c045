-- A redrive without a runner has no step to finish, so it ends here.
UPDATE penstock.redrive
SET is_to_stop = true,
    state = CASE WHEN runner IS NULL OR heard_at_ms < %(lost_ms)s THEN %(stopped)s ELSE state END,
    ended_at_ms = CASE WHEN runner IS NULL OR heard_at_ms < %(lost_ms)s THEN %(now_ms)s END
WHERE id = %(id)s AND queue = %(queue)s AND ended_at_ms IS NULL
RETURNING id
