SELECT id, queue, ordered::text, state, progress::text, started_at_ms, ended_at_ms, is_to_stop
FROM penstock.redrive WHERE id = %(id)s AND queue = %(queue)s
