SELECT e.number, array_agg(l.row) FROM penstock.lease AS e JOIN penstock.leased AS l ON l.lease = e.number
WHERE e.queue = %s AND e.token = %s GROUP BY e.number
