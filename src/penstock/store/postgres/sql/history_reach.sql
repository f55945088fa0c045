-- How far the rows reach that one page looks at; NULL if it is at the end of what is kept.
SELECT at_offset FROM penstock.history
WHERE at_offset >= %(first)s AND at_offset < %(end)s ORDER BY at_offset OFFSET %(looked)s LIMIT 1
