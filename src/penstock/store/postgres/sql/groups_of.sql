-- The groups that a server coordinates.
SELECT name, epoch FROM penstock.consumer_group WHERE node = %(node)s AND incarnation = %(incarnation)s
