#!/bin/bash
# Copy the primary the first time, and follow it.
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  rm -rf "${PGDATA:?}"
  until pg_basebackup --pgdata "$PGDATA" --wal-method stream --checkpoint fast --write-recovery-conf \
    --dbname "host=primary user=penstock application_name=standby"; do
    rm -rf "${PGDATA:?}"
    sleep 2
  done
  chmod 0700 "$PGDATA"
fi
exec postgres -D "$PGDATA"
