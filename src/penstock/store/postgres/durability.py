"""Durability of the database: what confirms its commits, and when nothing may be acknowledged.

    commit ──▶ the primary's disk ──▶ each synchronous standby there has to be ──▶ the answer
                                            │
                                            └─ longer than commit_timeout: the wait is cancelled, the outcome is unknown

Laws of this file
-----------------
1. A commit whose wait for the standby is cancelled is kept and visible on the primary, and gone if the standby is
   promoted. So its answer is `CommitUnconfirmed`, and until a later commit is confirmed nothing else is answered
   either: an answer might rest on it.
2. A confirmed commit confirms all before it, because the standby receives the log in order. So a call that writes
   anything needs no other proof, whichever server left something unconfirmed. Every verb that acknowledges writes at
   least the note of its answer (`operation`); what is only read back after a broken connection is followed by
   `CONFIRM`, which writes a record of its own. A transaction that only took an id would not wait for the standby.
3. A standby that is away for less than the timeout is waited for. After that, calls are refused at once: they would
   only fill the connections, and a receive that is not confirmed counts as a delivery all the same.
4. The settings are read with every beat. An operator, or a tool such as Patroni without its strict mode, may change
   them while servers run.

`Health` is how the database is, seen from outside the store: dead rows, and who keeps them from being removed. A
snapshot that stays open for long, of a forgotten `BEGIN` or a slow report, keeps VACUUM from removing old rows in
every table of the database, and the disk fills. So the oldest snapshot and its process are shown, for the operator
who ends it. The connection is one of its own: it must answer when all of the store's are busy.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection

from penstock.runtime.interface import LogEventWriter
from penstock.store.errors import NotConfirmed, StoreUnfit
from penstock.store.postgres.connection import BoundedConnection, answered_within, bounded
from penstock.store.postgres.errors import quiet
from penstock.store.postgres.statements import statement
from penstock.telemetry import STORE_CONFIRMS, STORE_UNCONFIRMED

# A transaction that waits for the standby and leaves nothing in any table.
CONFIRM = b"SELECT pg_logical_emit_message(true, 'penstock', '')"
ONE_MACHINE, STANDBY = "one machine", "synchronous standby"
_WITHOUT_STANDBY = ("off", "local")
_COUNT = re.compile(r"\s*(?:FIRST\s+|ANY\s+)?(\d+)\s*\(", re.IGNORECASE)


class NotDurable(StoreUnfit):
    """The configuration of the database does not guarantee what a store needs."""


class Engine(NamedTuple):
    """What a database does before it confirms a commit."""

    now_ms: int
    has_fsync: bool
    has_full_page_writes: bool
    synchronous_commit: str
    synchronous_standby_names: str
    # How many synchronous standbys are connected; None if the role may not see that.
    standbys: int | None

    @property
    def standbys_needed(self) -> int:
        """How many standbys a commit waits for.

        >>> names = ("", "a, b", "ANY 2 (a, b, c)", "1 (*)")
        >>> [Engine(0, True, True, "on", each, 0).standbys_needed for each in names]
        [0, 1, 2, 1]
        """
        if not self.synchronous_standby_names.strip() or self.synchronous_commit in _WITHOUT_STANDBY:
            return 0
        counted = _COUNT.match(self.synchronous_standby_names)
        return int(counted[1]) if counted else 1

    @property
    def is_standby_missing(self) -> bool:
        """Whether a commit of now would wait for a standby that is not there."""
        return self.standbys is not None and self.standbys < self.standbys_needed

    def doubts(self) -> list[str]:
        """What a store would rather have otherwise."""
        found = []
        if self.synchronous_commit == "off":
            found.append("synchronous_commit is off: a crash may lose what was answered a moment before")
        if not self.has_full_page_writes:
            found.append(
                "full_page_writes is off: unless the file system writes whole pages, a crash may damage the database"
            )
        return found


async def read_engine(connection: AsyncConnection[Any], schema: str) -> Engine:
    row = await (await connection.execute(statement("engine", schema))).fetchone()
    assert row is not None
    return Engine(*row)


async def check_durable(connection: AsyncConnection[Any], schema: str, *, may_lose: bool) -> list[str]:
    """Raise `NotDurable` if the database does not sync what it writes; return what is doubtful besides."""
    found = await read_engine(connection, schema)
    if may_lose:
        return []
    if not found.has_fsync:
        raise NotDurable("fsync is off: a crash of the machine may destroy the database; turn it on, or allow it")
    return found.doubts()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitState:
    """What a server says of the commits of a database, in its health, metrics and status."""

    # `one machine` or `synchronous standby`: what survives what.
    durability: str = ONE_MACHINE
    standbys_needed: int = 0
    standbys: int | None = None
    # Why nothing is acknowledged; empty if it is.
    refusal: str = ""
    # How many commits were not confirmed in time.
    unconfirmed: int = 0


class CommitGate:
    """Closed while commits cannot be confirmed: what would be answered is refused."""

    def __init__(
        self, *, requires_standby: bool, may_lose: bool, timeout_s: float, now_s: Callable[[], float] | None = None
    ) -> None:
        self._requires_standby = requires_standby
        self._may_lose = may_lose
        self._timeout_s = timeout_s
        self._now_s = now_s or (lambda: asyncio.get_running_loop().time())
        self._engine: Engine | None = None
        # Since when a standby has been missing.
        self._missing_since_s: float | None = None
        self.log_event: LogEventWriter = quiet
        # Whether a task tries to commit until that is confirmed again: else the gate would stay closed.
        self.is_probed = False
        # A wait was cancelled, and nothing was confirmed since.
        self.has_stalled = asyncio.Event()
        self.unconfirmed = 0
        self.refusal = ""

    def check(self) -> None:
        """Raise `NotConfirmed` while nothing may be acknowledged."""
        if self.refusal:
            raise NotConfirmed(self.refusal)

    def learn(self, engine: Engine) -> None:
        """Take note of what was read with a beat."""
        self._engine = engine
        if not engine.is_standby_missing:
            self._missing_since_s = None
        elif self._missing_since_s is None:
            self._missing_since_s = self._now_s()
        self._decide()

    def stall(self) -> None:
        """A commit was not confirmed in time."""
        self.unconfirmed += 1
        if self.is_probed:
            self.has_stalled.set()
        self._decide()

    def confirm(self) -> None:
        """A commit was confirmed that began after the last one that was not."""
        self.has_stalled.clear()
        self._decide()

    def state(self) -> CommitState:
        engine = self._engine
        if engine is None:
            return CommitState(refusal=self.refusal, unconfirmed=self.unconfirmed)
        return CommitState(
            durability=STANDBY if engine.standbys_needed else ONE_MACHINE,
            standbys_needed=engine.standbys_needed,
            standbys=engine.standbys,
            refusal=self.refusal,
            unconfirmed=self.unconfirmed,
        )

    def _decide(self) -> None:
        before, self.refusal = self.refusal, self._reason()
        if self.refusal and not before:
            self.log_event(STORE_UNCONFIRMED, reason=self.refusal)
        elif before and not self.refusal:
            self.log_event(STORE_CONFIRMS)

    def _reason(self) -> str:
        engine = self._engine
        if engine is not None:
            if not engine.has_fsync and not self._may_lose:
                return "fsync of the database is off: nothing that it confirms is safe. Turn it on, or allow it"
            if self._requires_standby and not engine.standbys_needed:
                return (
                    "postgres_requires_standby is set, and commits wait for no standby: set synchronous_standby_names "
                    "of the database, and leave synchronous_commit on"
                )
            if self._is_missing_for_long():
                return (
                    f"a commit needs {engine.standbys_needed} synchronous standby(s), and {engine.standbys} is "
                    "connected: start it, or change synchronous_standby_names"
                )
        if self.has_stalled.is_set():
            return (
                f"a commit was not confirmed by a synchronous standby within {self._timeout_s:g} s, and none has been "
                "since: look whether the standby runs and keeps up"
            )
        return ""

    def _is_missing_for_long(self) -> bool:
        if self._missing_since_s is None:
            return False
        # A store that was told to need one does not wait until it is back.
        return self._requires_standby or self._now_s() - self._missing_since_s >= self._timeout_s


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
