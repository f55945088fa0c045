"""How the database is, seen from outside the store: dead rows, and who keeps them from being cleared away.

A snapshot that stays open for long, of a forgotten `BEGIN` or a slow report, keeps VACUUM from removing rows that
everybody else has done with, in every table of the database, and the disk fills. So the
oldest snapshot and its process are shown, for the operator who ends it.

The connection is one of its own: it must answer when all of the store's are busy.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from penstock.store.postgres.connection import BoundedConnection, answered_within, bounded
from penstock.store.postgres.durability import CommitState
from penstock.store.postgres.statements import statement

EVERY_S = 5.0
# How long it may take to answer; else it is silent.
ANSWER_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseHealth:
    """What was found the last time."""

    # By table; those of one schema, as the statistics of PostgreSQL have them.
    live_rows: dict[str, int] = field(default_factory=dict)
    dead_rows: dict[str, int] = field(default_factory=dict)
    # How many transactions ago the oldest snapshot was taken, and by which process; None if there is none.
    oldest_snapshot_transactions: int | None = None
    oldest_snapshot_s: float | None = None
    holder_pid: int | None = None
    # The state of the backend, or which slot or prepared transaction it is.
    holder: str = ""
    is_answering: bool = True
    # Which of several: the patterns of its queues.
    database: str = "*"
    # What confirms its commits, as the store has found.
    commits: CommitState = field(default_factory=CommitState)


async def read_vitals(connection: psycopg.AsyncConnection[Any], schema: str) -> DatabaseHealth:
    row = await (await connection.execute(statement("vitals", schema), {"schema": schema})).fetchone()
    assert row is not None
    tables, live, dead, transactions, pid, holder, held_s = row
    return DatabaseHealth(
        live_rows=dict(zip(tables, live, strict=True)),
        dead_rows=dict(zip(tables, dead, strict=True)),
        oldest_snapshot_transactions=transactions,
        oldest_snapshot_s=held_s,
        holder_pid=pid,
        holder=holder or "",
    )


class Watch:
    """Read the health every few seconds, reconnecting when needed; `seen` is the last result."""

    def __init__(
        self, dsn: str, schema: str, *, database: str = "*", every_s: float = EVERY_S, answer_s: float = ANSWER_S
    ) -> None:
        self.seen = DatabaseHealth(database=database)
        self._database = database
        self._dsn = dsn
        self._schema = schema
        self._every_s = every_s
        self._answer_s = answer_s

    async def run(self) -> None:
        while True:
            try:
                async with await BoundedConnection.connect(
                    bounded(self._dsn, connect_timeout=5), autocommit=True, prepare_threshold=None
                ) as connection:
                    while True:
                        with answered_within(connection, self._answer_s):
                            found = await read_vitals(connection, self._schema)
                        self.seen = replace(found, database=self._database)
                        # Nothing is heard here but that the connection has ended, which is noticed at once.
                        async for _ in connection.notifies(timeout=self._every_s):
                            pass
            except psycopg.Error:
                self.seen = DatabaseHealth(is_answering=False, database=self._database)
                await asyncio.sleep(1)


@asynccontextmanager
async def watching(watch: Watch) -> AsyncIterator[Callable[[], DatabaseHealth]]:
    """Watch a database for as long as this lasts, and lend what was seen last."""
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch.run())
        try:
            yield lambda: watch.seen
        finally:
            watching.cancel()
