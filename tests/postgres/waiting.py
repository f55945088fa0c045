"""Who waits in the database for what somebody else holds: nobody tells, so it is looked for."""

import asyncio
from typing import Any

import psycopg

# A test that waits longer has failed.
WAIT_S = 60.0
_LOOK_S = 0.01
_WAITS = "SELECT 1 FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"


async def until_waited_for(holder: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """Return when somebody waits for a lock that a connection holds.

    It is asked on another one: in a transaction, the others are seen as they were when it was first asked.
    """
    pid = holder.info.backend_pid
    async with (
        asyncio.timeout(WAIT_S),
        await psycopg.AsyncConnection.connect(holder.info.dsn, autocommit=True) as watcher,
    ):
        while await (await watcher.execute(_WAITS, (pid,))).fetchone() is None:  # noqa: ASYNC110 - nobody says so.
            await asyncio.sleep(_LOOK_S)
