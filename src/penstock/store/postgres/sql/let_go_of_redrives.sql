UPDATE penstock.redrive SET runner = NULL WHERE runner = %(runner)s AND ended_at_ms IS NULL RETURNING id
