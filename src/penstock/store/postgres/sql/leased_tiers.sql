SELECT served_tier, count(*)::integer FROM (
    SELECT l.served_tier FROM penstock.lease AS e JOIN penstock.leased AS l ON l.lease = e.number
    WHERE e.queue = %s ORDER BY e.number DESC LIMIT 10000
) AS message
GROUP BY served_tier ORDER BY served_tier
