-- Topics that were changed after a version, in the order of the changes.
SELECT version, number, id, name, settings, is_deleted FROM penstock.topic WHERE version > %(version)s ORDER BY version, number
