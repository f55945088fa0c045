"""What a store does while it opens and others hold a lock that it needs: it waits briefly, says who, and tries again.

A lock that is waited for holds up everyone behind. The wait is therefore short, and
repeated; between two tries the holders are looked up in `pg_locks` and logged.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from psycopg import AsyncConnection, errors

from penstock.runtime.interface import LogEventWriter
from penstock.telemetry import STORE_WAITS, LogEvent

_TRIES_MAX = 20
_HOLDERS_MAX = 3
# Who holds tables of the schema by more than reading them, those first that have held them longest. A role without
# pg_read_all_stats sees no application and no time of other roles.
_HOLDERS = """
SELECT held.pid, held.relation::regclass::text, held.mode, who.usename::text, who.application_name, who.xact_start::text
  FROM pg_locks AS held
  JOIN pg_class ON pg_class.oid = held.relation
  JOIN pg_database ON pg_database.oid = held.database AND datname = current_database()
  LEFT JOIN pg_stat_activity AS who ON who.pid = held.pid
 WHERE held.granted AND held.pid IS DISTINCT FROM pg_backend_pid() AND relkind IN ('r', 'p', 'S')
   AND relnamespace = to_regnamespace(%s)
 ORDER BY held.mode = 'AccessShareLock', who.xact_start LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class BriefWaits:
    """How long one try waits for a lock, in PostgreSQL's words, and how long after it the next one begins."""

    lock: str = "2s"
    pause_s: float = 1.0

    @property
    def limit(self) -> str:
        """The statement that limits the waits of a transaction."""
        return f"SET LOCAL lock_timeout = '{self.lock}'"


BRIEF_WAITS = BriefWaits()


def quiet(event: LogEvent, /, **fields: object) -> None:
    """Log nothing: for a store that is opened where nothing reads a log."""


async def without_long_waits(
    connection: AsyncConnection,
    schema: str,
    run: Callable[[], Awaitable[None]],
    log_event: LogEventWriter,
    *,
    pause_s: float,
) -> None:
    """Run something that waits for locks for a moment only, until it gets them; raises what the last try raised."""
    for tries_left in reversed(range(_TRIES_MAX)):
        try:
            await run()
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            if not tries_left:
                raise
            for pid, table, mode, role, application, since in await _holders(connection, schema):
                log_event(STORE_WAITS, table=table, mode=mode, pid=pid, role=role, application=application, since=since)
            await asyncio.sleep(pause_s)
        else:
            return


async def _holders(connection: AsyncConnection, schema: str) -> list[tuple[object, ...]]:
    return await (await connection.execute(_HOLDERS, (schema, _HOLDERS_MAX))).fetchall()
