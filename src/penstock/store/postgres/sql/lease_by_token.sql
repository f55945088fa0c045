SELECT e.number, array_agg(l.row) FROM penstock.lease AS e CROSS JOIN LATERAL penstock.in_lease(e.number, false) AS l
WHERE e.queue = %s AND e.token = %s GROUP BY e.number
