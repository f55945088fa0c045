"""Errors of the database that an operator can fix, as sentences that say how; and how a busy lock is retried.

The database's own messages may name hosts, users and tables, so they go to the log only; these sentences may be shown
to any caller. A refused call has changed nothing. Every other database error is a bug of ours and is not translated.

A lock that others may hold for long is waited for half a second at most (`sql/`), because all others would queue
up behind the waiter. Then it is released and tried again a little later (`retry_on_lock`). A store that opens waits as
briefly; between two tries it looks up the holders in `pg_locks` and logs them (`without_long_waits`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import psycopg
from psycopg import AsyncConnection, errors

from penstock.runtime.interface import LogEventWriter
from penstock.store.errors import StoreForbids, StoreRefuses, StoreTurnsAway
from penstock.store.postgres.connection import ConnectFailed
from penstock.telemetry import STORE_WAITS, LogEvent

# The database takes no changes; another one may, that the same URL leads to by now.
READ_ONLY = "25006"
_FORBIDDEN = "42501"
_SENTENCES = {
    READ_ONLY: "the database takes no changes: it is a standby, or default_transaction_read_only is on. Connect to the "
    "primary; target_session_attrs=read-write in the URL finds it among several hosts",
    _FORBIDDEN: "the role that is used in the database lacks a right for this: see the roles in how to run on "
    "PostgreSQL, or use the one that made the schema",
    "3F000": "the schema is not in the database: run `penstock migrate`, and look whether it is the right database",
    "42P01": "a table of the schema is not in the database: run `penstock migrate`",
    "42883": "a function is not in the schema as this server knows it: another version of Penstock has migrated it. "
    "Use that one here, too; or run `penstock migrate`, if it was an older one",
    "53100": "the disk of the database is full: give it more room, or let old history go",
    "53200": "the database has no memory left for this: give it more, or send and receive fewer messages at once",
    "57014": "the database has ended the call: statement_timeout of its role, or of the database, is too short",
}


# While a connection is made the driver passes no code on, only what the server says. In other languages it
# is taken for a server that is not there yet, and tried again.
_POOLER = "unsupported startup parameter"
_TURNED_AWAY = (
    *(
        "password authentication failed",
        "no password supplied",
        "authentication failed for user",
        "no pg_hba.conf entry",
    ),
    *("does not exist", "is not permitted to log in", "permission denied for database", _POOLER),
    *("certificate verify failed", "server does not support SSL", "does not match host name"),
)


class TurnedAway(ConnectFailed, StoreTurnsAway):
    """The server is there, and does not let us in."""


class Locked(StoreRefuses):
    """Others hold a lock for longer than a call may wait for it."""


def refusal(error: psycopg.Error) -> StoreRefuses | StoreForbids | None:
    """Return what an error of the database is to those who asked; None for a mistake of ours."""
    if error.sqlstate == psycopg.errors.LockNotAvailable.sqlstate:
        return Locked(
            "others hold a lock for longer than a call may wait for it: look for a transaction that was left open, or "
            "for a lock_timeout of the role or of the database that is too short"
        )
    sentence = _SENTENCES.get(error.sqlstate or "")
    if sentence is None:
        return None
    return StoreForbids(sentence) if error.sqlstate == _FORBIDDEN else StoreRefuses(sentence)


def not_let_in(error: psycopg.OperationalError) -> ConnectFailed:
    """Return what to say of a connection that could not be made."""
    said = str(error)
    advice = (
        " (that is PgBouncer: say --pooled, or PENSTOCK_POSTGRES_TRANSACTION_POOLING=true)" if _POOLER in said else ""
    )
    is_final = any(words in said for words in _TURNED_AWAY)
    return (TurnedAway if is_final else ConnectFailed)(f"{said}{advice}")


T = TypeVar("T")


async def retry_on_lock(run: Callable[[], Awaitable[T]], waits_s: Sequence[float]) -> T:
    """Do something that may find a lock taken; raises `Locked` if it still is after some tries."""
    for wait_s in waits_s:
        try:
            return await run()
        except Locked:
            await asyncio.sleep(wait_s)
    return await run()


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
