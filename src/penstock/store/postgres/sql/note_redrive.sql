UPDATE penstock.redrive
SET state = %(state)s, progress = %(progress)s::json, ended_at_ms = %(ended_at_ms)s, heard_at_ms = %(now_ms)s
WHERE id = %(id)s AND runner = %(runner)s AND ended_at_ms IS NULL
RETURNING is_to_stop
