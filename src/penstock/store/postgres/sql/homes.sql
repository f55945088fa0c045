SELECT DISTINCT home FROM penstock.marked WHERE queue = %s AND home IS NOT NULL
