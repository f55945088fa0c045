-- The epoch of a group, and its last generation.
SELECT epoch, generation FROM penstock.consumer_group WHERE name = %(group)s
