INSERT INTO penstock.audit_log (token, at_ms, entry)
SELECT token, at_ms, entry
FROM json_to_recordset(%(entries)s::json) AS given (token bigint, at_ms bigint, entry text)
ON CONFLICT (token) DO NOTHING
RETURNING id
