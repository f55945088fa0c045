SELECT at_ms, actor, reason, tier, until_ms, ids FROM penstock.escalation
WHERE queue = %s ORDER BY number DESC LIMIT %s
