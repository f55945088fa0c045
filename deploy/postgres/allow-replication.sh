#!/bin/bash
# Runs once, when the primary's data folder is made: let the standby copy, and wait for it from then on.
set -euo pipefail
echo "host replication penstock all scram-sha-256" >> "$PGDATA/pg_hba.conf"
psql --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --set ON_ERROR_STOP=1 <<'SQL'
alter system set synchronous_standby_names = 'standby';
alter system set wal_keep_size = '1GB';
SQL
