-- Whether the connection of a server is still there. Others' start times are hidden from roles without pg_read_all_stats.
CREATE OR REPLACE FUNCTION penstock.is_connected(p_server penstock.server) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM pg_stat_activity
        WHERE pid = p_server.pid AND usename = p_server.role
            AND coalesce(backend_start, p_server.began_at) = p_server.began_at
    )
$$
