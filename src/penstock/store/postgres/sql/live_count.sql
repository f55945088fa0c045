SELECT penstock.live(%s, %s)
