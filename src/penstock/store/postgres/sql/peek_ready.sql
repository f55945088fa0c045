-- Messages nothing has happened to, of one tier, from a number on; bodies only of those in which the text is that is sought.
SELECT number << 3 | tier, sent_at_ms,
    CASE WHEN %(text)s::bytea IS NULL OR position(%(text)s::bytea IN body) > 0 THEN body END, attributes,
    octet_length(body) + coalesce(octet_length(attributes), 0)
FROM penstock.ready
WHERE queue = %(queue)s AND tier = %(tier)s AND number >= %(number)s ORDER BY number LIMIT %(most)s
