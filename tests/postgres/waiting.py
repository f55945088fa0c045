"""Find out who waits in the database for a lock."""

from collections.abc import Sequence
from typing import Any

import psycopg

from tests.waiting import eventually

_WAITS = "SELECT 1 FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"


async def until_waited_for(holder: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """Return when a session waits for a lock that a connection holds.

    It is asked on another one: in a transaction, the others are seen as they were when it was first asked.
    """
    pid = holder.info.backend_pid
    async with await psycopg.AsyncConnection.connect(holder.info.dsn, autocommit=True) as watcher:
        await eventually(lambda: is_found(watcher, _WAITS, (pid,)))


async def is_found(
    connection: psycopg.AsyncConnection[Any], query: str, parameters: Sequence[object] | None = None
) -> bool:
    """Whether a query returns a row."""
    return await (await connection.execute(query.encode(), parameters)).fetchone() is not None
