SELECT id, entry FROM penstock.audit_log
WHERE %(before)s::bigint IS NULL OR id < %(before)s::bigint
ORDER BY id DESC LIMIT %(most)s
