SELECT served_tier, count(*)::integer FROM (
    SELECT l.served_tier FROM penstock.lease AS e CROSS JOIN LATERAL penstock.in_lease(e.number, false) AS l
    WHERE e.queue = %s ORDER BY e.number DESC LIMIT 10000
) AS message
GROUP BY served_tier ORDER BY served_tier
