-- The queues that messages in a queue came from, one look for each: not through all of the messages.
WITH RECURSIVE found (home) AS (
    (SELECT home FROM penstock.marked WHERE queue = %(queue)s AND home IS NOT NULL ORDER BY home LIMIT 1)
    UNION ALL
    SELECT (
        SELECT m.home FROM penstock.marked AS m
        WHERE m.queue = %(queue)s AND m.home IS NOT NULL AND m.home > found.home ORDER BY m.home LIMIT 1
    )
    FROM found WHERE found.home IS NOT NULL
)
SELECT home FROM found WHERE home IS NOT NULL
UNION
SELECT l.home FROM penstock.lease AS e JOIN penstock.leased AS l ON l.lease = e.number
WHERE e.queue = %(queue)s AND e.keys IS NULL AND l.home IS NOT NULL
