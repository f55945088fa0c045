-- Remove entries that are too old, and the oldest above the size limit.
WITH counted AS (
    SELECT id, sum(octet_length(entry)) OVER (ORDER BY id DESC) AS size_bytes FROM penstock.audit_log
)
DELETE FROM penstock.audit_log
WHERE at_ms < %(before_ms)s OR id <= (SELECT max(id) FROM counted WHERE size_bytes > %(bytes_max)s)
RETURNING id
