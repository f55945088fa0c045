-- How many messages more a queue may hold; NULL if it has no size.
SELECT sum(free)::bigint FROM penstock.room WHERE queue = %s
