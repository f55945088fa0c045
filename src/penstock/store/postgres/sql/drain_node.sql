UPDATE penstock.node SET is_to_drain = true WHERE name = %(name)s AND state <> 'stopped' RETURNING incarnation
