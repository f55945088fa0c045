-- How many messages of its group are before one, in what state the first is, and how many are leased that close the group.
SELECT
    (SELECT count(*)::integer FROM penstock.marked
     WHERE queue = %(queue)s AND grp = %(group)s AND turn IS NULL AND ordinal < %(ordinal)s),
    (SELECT state FROM penstock.marked
     WHERE queue = %(queue)s AND grp = %(group)s AND turn IS NULL ORDER BY ordinal LIMIT 1),
    coalesce((
        SELECT held FROM penstock.line WHERE queue = %(queue)s AND grp = %(group)s AND open_tier IS NULL
    ), 0)
