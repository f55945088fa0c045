-- The queues that messages in a queue came from.
SELECT home FROM penstock.marked WHERE queue = %(queue)s AND home IS NOT NULL
UNION
SELECT l.home FROM penstock.lease AS e JOIN penstock.leased AS l ON l.lease = e.number
WHERE e.queue = %(queue)s AND l.home IS NOT NULL
