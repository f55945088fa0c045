-- If two servers want the same one, the second finds, after the first has committed, a runner that was heard just now.
UPDATE penstock.redrive
SET runner = %(runner)s, heard_at_ms = %(now_ms)s
WHERE ended_at_ms IS NULL
  AND (runner = %(runner)s OR %(takes_over)s AND (runner IS NULL OR heard_at_ms < %(lost_ms)s))
RETURNING id, queue, ordered::text, state, progress::text, started_at_ms, ended_at_ms, is_to_stop
