SELECT (SELECT count(*) FROM penstock.marked WHERE queue = %(queue)s AND home IS NOT NULL)
    + (SELECT count(*) FROM penstock.lease AS e JOIN penstock.leased AS l ON l.lease = e.number
       WHERE e.queue = %(queue)s AND l.home IS NOT NULL)
