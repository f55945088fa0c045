-- Messages nothing has happened to, of one tier, from a number on.
SELECT number << 3 | tier, sent_at_ms, body, attributes FROM penstock.ready
WHERE queue = %s AND tier = %s AND number >= %s ORDER BY number LIMIT %s
