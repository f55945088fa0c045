"""The pool of connections of a store, and how it makes a call on one of them.

Laws of this file
-----------------
1. A call is one statement in a transaction of its own, so one round trip.
2. A deadlock or a serialization failure undoes the statement, so the call is made again here.
3. If a connection breaks, the outcome of its call is unknown: `ConnectionLost`. A call with an
   operation number is made again under that number, which the database takes only once. If the
   first attempt succeeded, the answer it noted is read.
4. A connection that is not idle after a call is closed.
5. A database that stays silent is treated as lost after some seconds (`ConnectionWatch`), and a commit that waits too
   long for a standby is unconfirmed (`durability.py`).
6. A refusal that an operator can fix is raised with a sentence that says how (`errors.py`).

How silence is detected
-----------------------

    a call takes long → ask over a new connection ─┬→ no answer: every open socket is closed
                                                   └→ an answer: sockets of calls without a working process are closed

No timeout fits every call: one may wait for a lock, or count ten million rows. So a long call is not ended; its
server process is looked up over a second connection. If that process is idle, it has answered, and the answer was lost.

While the database is silent, one caller at a time tries to connect and the others are refused at once. Otherwise each
would wait its own ten seconds, one after the other.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.contract.names import check_schema
from penstock.store.errors import NotConfirmed, StoreTurnsAway
from penstock.store.postgres.array_codec import DUMPERS
from penstock.store.postgres.connection import (
    CANCEL_S_MAX,
    Arguments,
    BoundedConnection,
    CommitUnconfirmed,
    ConnectFailed,
    ConnectionLost,
    ConnectionTimedOut,
    Session,
    answered_within,
    bounded,
    unanswered,
)
from penstock.store.postgres.durability import CONFIRM, CommitGate
from penstock.store.postgres.errors import BRIEF_WAITS, READ_ONLY, BriefWaits, Locked, not_let_in, refusal
from penstock.store.postgres.statements import SqlFunction, function, statement

# How often calls are checked for their duration, and how long connecting is not tried after a failure.
LOOK_S = 1.0
# Processes that wait for the next statement, and have for a while; and those that wait for a synchronous standby. One
# that is not there proves nothing: the number is the one that PgBouncer tells, where that is in between.
_LONG = """
SELECT pid, wait_event = 'SyncRep' FROM pg_stat_activity
WHERE pid = ANY (%s) AND (
    state LIKE 'idle%%' AND state_change < clock_timestamp() - make_interval(secs => %s) OR wait_event = 'SyncRep'
)
"""
# Behind PgBouncer: whether any process of ours has waited for a standby for so long.
_ANY_LONG = """
SELECT 1 FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND wait_event = 'SyncRep'
    AND state_change < clock_timestamp() - make_interval(secs => %s) LIMIT 1
"""


class ConnectionWatch:
    def __init__(
        self, connect: Callable[[], Awaitable[AsyncConnection]], *, wait_s: float, commit_s: float, is_pooled: bool
    ) -> None:
        self._connect = connect
        self._wait_s = wait_s
        # How long a commit may wait for a standby.
        self._commit_s = commit_s
        self._is_pooled = is_pooled
        # Sessions that are lent, and since when, or when they were last found to be worked for.
        self._since: dict[Session, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._is_silent = False
        self._trying = 0
        self._next_try = 0.0

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    # These two are on the way of every call.

    def lent(self, session: Session) -> None:
        loop = asyncio.get_running_loop()
        self._since[session] = session.lent_s = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._look_s, self._look)

    @property
    def _look_s(self) -> float:
        return min(LOOK_S, self._wait_s, self._commit_s)

    def returned(self, session: Session) -> None:
        self._since.pop(session, None)

    @property
    def is_silent(self) -> bool:
        """Whether the database is known to be silent, so that connecting now is not worth a try."""
        return self._is_silent and (self._trying > 0 or asyncio.get_running_loop().time() < self._next_try)

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Try to connect. A refusal is an answer, too."""
        self._trying += 1
        try:
            yield
        except errors.ConnectionTimeout:
            self._fall_silent()
            raise
        except psycopg.Error:
            self._is_silent = False
            raise
        else:
            self._is_silent = False
        finally:
            self._trying -= 1

    def _fall_silent(self) -> None:
        self._is_silent = True
        self._next_try = asyncio.get_running_loop().time() + LOOK_S

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._look_s, self._look) if self._since else None
        if self._asking is not None and not self._asking.done():
            return
        now = loop.time()
        long = [
            session
            for session, since in self._since.items()
            if now - since >= self._wait_s or now - session.lent_s >= self._commit_s
        ]
        if long:
            self._asking = asyncio.create_task(self._ask_after(long))  # noqa: TID251 - close awaits it.

    async def _ask_after(self, sessions: list[Session]) -> None:
        """Close those of the sessions that wait for nothing, and end waits for a standby that take too long."""
        began = {session: (self._since.get(session), session.lent_s) for session in sessions}
        waiting: set[Session] = set()
        try:
            lost, waiting = await self._lost(sessions)
        except ConnectionTimedOut:
            lost = set(sessions)
        except (ConnectionLost, psycopg.Error):
            # It refuses, so it is there; or what is there ends those connections by itself.
            lost = set()
        now = asyncio.get_running_loop().time()
        # It may have come back meanwhile, and be lent for another call.
        same = [each for each, when in began.items() if when == (self._since.get(each), each.lent_s)]
        for session in same:
            if session in lost:
                session.close_socket()
            self._since[session] = now
        overdue = [each for each in same if each in waiting and now - each.lent_s >= self._commit_s]
        await asyncio.gather(*(session.cancel_wait() for session in overdue))

    async def _lost(self, sessions: list[Session]) -> tuple[set[Session], set[Session]]:
        """Return the sessions whose process is idle, and those whose process waits for a standby."""
        async with await self._connect() as connection:
            try:
                with answered_within(connection, self._wait_s):
                    if self._is_pooled:
                        found = await (await connection.execute(_ANY_LONG, (self._commit_s,))).fetchone()
                        return set(), set(sessions) if found else set()
                    asked = ([session.pid for session in sessions], self._wait_s)
                    rows = await (await connection.execute(_LONG, asked)).fetchall()
            except psycopg.OperationalError as error:
                if not connection.closed:
                    raise
                self._fall_silent()
                raise ConnectionTimedOut(str(error)) from error
        waits: dict[int, bool] = dict(rows)
        lost = {session for session in sessions if waits.get(session.pid) is False}
        return lost, {session for session in sessions if waits.get(session.pid)}


_RETRIES_MAX = 20
_SETTLE_PAUSE_S = 0.1
# Every statement has one good plan, by an index. A table of messages is empty now and has millions of rows a minute
# later, before PostgreSQL has counted them: a plan for an empty table must not be kept. Without sorts, since the index
# that has the order looks no better, in an empty table, than any other with the same first columns.
PLANS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
_ISOLATION = ("default_transaction_isolation", r"read\ committed")
# Databases with another encoding get ASCII only. One with SQL_ASCII takes any bytes.
_ENCODINGS = {"UTF8": "utf-8", "SQL_ASCII": "utf-8", "LATIN1": "latin-1"}
T = TypeVar("T")
_AGAIN = (errors.SerializationFailure, errors.DeadlockDetected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a store waits for what. A server uses what stands here."""

    # Between two turns of what a store does by itself.
    beat_s: float = 1.0
    # How long wakes gather before they go out together.
    tell_s: float = 0.05
    # Between two counts of queues that hold much.
    recount_s: float = 1.0
    # How long a call waits for a lock that others hold, such as that of a group in a transaction that was left open.
    lock: str = "10s"
    # While a store opens; and between tries of what has a queue for itself, which waits half a second in each.
    opening: BriefWaits = BRIEF_WAITS
    retries_s: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
    # How long a lease waits for another store that is at what follows from the time alone.
    lapse_ms: int = 500
    # For how long it is tried to learn what became of a call whose connection broke: a server that is restarted is back
    # by then. After that it is left to the client to ask again, for whom an ack that was done is stale.
    settle_s_max: float = 5.0
    # How long the cancellation of a call may take; then its connection is given up.
    cancel_s_max: float = CANCEL_S_MAX


TIMING = Timing()


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    """Where the database is, and how it is used."""

    url: str
    schema: str = "penstock"
    connections_max: int = 8
    # Behind PgBouncer in transaction mode: no prepared statements, no LISTEN, no lock that outlives a transaction.
    is_pooled: bool = False
    # Whether a server that is configured to lose what it answered may be used all the same.
    may_lose: bool = False
    # How long periods of the history stay; 0 for ever. Those that go are dropped, or only detached.
    history_retention_ms: int = 0
    drops_history: bool = False
    # How long a call may take before it is found out whether the database is there at all, and how long that may take.
    silence_s: float = 5.0
    # How long a commit may wait for a synchronous standby, and whether nothing is acknowledged without one.
    commit_timeout_s: float = 10.0
    requires_standby: bool = False
    timing: Timing = TIMING

    def __post_init__(self) -> None:
        check_schema(self.schema)
        if self.connections_max < 1:
            raise ValueError(f"connections_max is {self.connections_max}; it is at least 1")


class OnceCaller(Protocol):
    """Calls a function once: a `Database`, or a caller's transaction in one."""

    async def call_once(self, name: str, *values: Any, operation: int) -> Any:
        """Call a function whose last argument is an operation number. Returns its answer, a single value."""
        ...


class Database:
    def __init__(self, settings: PostgresSettings) -> None:
        self.settings = settings
        self._free: list[Session] = []
        self._places = asyncio.Semaphore(settings.connections_max)
        self._is_closed = False
        here = (*PLANS.items(), ("lock_timeout", settings.timing.lock))
        self._plans_here = ";".join(f"SET LOCAL {name} = '{value}'" for name, value in here).encode()
        # The encoding of its texts, by Python's name; known after the first connection.
        self.encoding = "utf-8"
        self._watch = ConnectionWatch(
            partial(self.connect, wait_s=settings.silence_s), wait_s=settings.silence_s,
            commit_s=settings.commit_timeout_s, is_pooled=settings.is_pooled,
        )  # fmt: skip
        # Closed while nothing would confirm a commit.
        self.gate = CommitGate(
            requires_standby=settings.requires_standby, may_lose=settings.may_lose, timeout_s=settings.commit_timeout_s
        )

    async def connect(self, *, wait_s: float | None = None) -> AsyncConnection:
        """Open a connection that the caller owns; in as many seconds, or as the URL says."""
        url = bounded(self.settings.url)
        if not self.settings.is_pooled:
            url = _with_plans(url, self.settings.timing.lock)
        if wait_s is not None:
            url = make_conninfo(url, connect_timeout=max(1, round(wait_s)))
        try:
            with self._watch.trying():
                connection: AsyncConnection = await BoundedConnection.connect(url, autocommit=True)
        except errors.ConnectionTimeout as error:
            raise ConnectionTimedOut(unanswered(self.settings.url)) from error
        except psycopg.OperationalError as error:
            raise not_let_in(error) from error
        self.encoding = _ENCODINGS.get(connection.info.parameter_status("server_encoding") or "UTF8", "ascii")
        connection.prepare_threshold = None if self.settings.is_pooled else 2
        # Not the default of the role or database: a call has to see what was committed while it waited
        # for a lock. Single statements go by the options above; behind a pooler there are none.
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        for kind, dumper in DUMPERS:
            connection.adapters.register_dumper(kind, dumper)
        return connection

    async def close(self) -> None:
        self._is_closed = True
        await self._watch.close()
        await self._close_free()

    async def _close_free(self) -> None:
        while self._free:
            await self._free.pop().close()

    # Two methods rather than a context manager, because every verb uses them.

    async def borrow(self) -> Session:
        """Return a connection for exclusive use until it is given back."""
        await self._places.acquire()
        try:
            while self._free:
                session = self._free.pop()
                if session.is_idle:
                    self._watch.lent(session)
                    return session
                await session.close()
            session = await self._connected()
        except BaseException:
            self._places.release()
            raise
        self._watch.lent(session)
        return session

    async def _connected(self) -> Session:
        if self._watch.is_silent:
            # Callers in the queue would each wait for the same missing answer, one after the other.
            raise ConnectionTimedOut(unanswered(self.settings.url))
        return Session(await self.connect(), self.gate.stall, cancel_s_max=self.settings.timing.cancel_s_max)

    async def give_back(self, session: Session) -> None:
        self._watch.returned(session)
        try:
            if session.is_idle and not self._is_closed:
                self._free.append(session)
            else:
                await session.close()
        finally:
            self._places.release()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection for a transaction of several statements."""
        self.gate.check()
        session = await self.borrow()
        try:
            self.gate.check()
            async with session.transaction() as connection:
                if self.settings.is_pooled:
                    await connection.execute(self._plans_here)
                yield connection
        except ConnectionLost:
            await self._close_free()
            raise
        except psycopg.Error as error:
            await self._refuse(error)
            raise
        finally:
            await self.give_back(session)

    async def _refuse(self, error: psycopg.Error) -> None:
        """Raise the refusal that an error of the database stands for, unless it is a bug of ours."""
        if error.sqlstate == READ_ONLY:
            # The former primary is a standby now, and these connections would stay with it.
            await self._close_free()
        refused = refusal(error)
        if refused is not None:
            raise refused from error

    async def call(self, name: str, *values: Any) -> Any:
        """Call one of our functions and return the one row it answers with."""
        return await self._call(function(name, self.settings.schema), values)

    async def call_ungated(self, name: str, *values: Any) -> Any:
        """Call a function that acknowledges nothing, also while nothing can be acknowledged."""
        return await self._call(function(name, self.settings.schema), values, is_gated=False)

    async def confirm(self) -> None:
        """Return when the database has confirmed a commit, and with it all that were visible before."""
        await self._run(CONFIRM, ())

    async def ask(self, name: str, *values: Any, **named: Any) -> list[Any]:
        """Run a statement of `sql/` that only reads, or does no harm if it is run twice, and return its rows."""
        return await self.read(statement(name, self.settings.schema), named or values)

    async def read(self, text: bytes, values: Arguments = ()) -> list[Any]:
        try:
            return await self._run(text, values)
        except ConnectionLost:
            # Reading twice is harmless; if the database is gone, connecting says so.
            return await self._run(text, values)

    async def call_once(self, name: str, *values: Any, operation: int) -> Any:
        """Call a function that notes its answer under its operation number: see `OnceCaller`."""
        made = function(name, self.settings.schema)

        async def make() -> Any:
            return (await self._call(made, (*values, operation)))[0]

        return await self.make_once(make, operation)

    async def make_once(self, make: Callable[[], Awaitable[Any]], operation: int) -> Any:
        """Make something that notes its answer under an operation number, and return the answer.

        Raises `ConnectionLost` only if the database cannot be reached, or not again.
        """
        try:
            return await make()
        except ConnectFailed:
            raise
        except ConnectionLost:
            return await self._settle(make, operation)

    async def _settle(self, make: Callable[[], Awaitable[Any]], operation: int) -> Any:
        """Find out what became of an operation, and make it if nothing did; wait for a server that is restarted."""
        answer = f"SELECT answer FROM {self.settings.schema}.operation WHERE id = %s".encode()
        until = asyncio.get_running_loop().time() + self.settings.timing.settle_s_max
        while True:
            try:
                found = await self._run(answer, (operation,))
                if not found:
                    return await make()
                # It is there; whether a standby has it is not known, and nothing was written since.
                await self.confirm()
                return found[0][0]
            except (errors.UniqueViolation, Locked):
                # It was still on its way, or is.
                continue
            except (ConnectionTimedOut, StoreTurnsAway):
                raise
            except NotConfirmed as error:
                # The first attempt may have done it.
                raise CommitUnconfirmed(str(error)) from error
            except ConnectionLost:
                if asyncio.get_running_loop().time() >= until:
                    raise
                await asyncio.sleep(_SETTLE_PAUSE_S)

    async def _call(self, made: SqlFunction, values: Sequence[Any], *, is_gated: bool = True) -> Any:
        if is_gated:
            self.gate.check()
        if self.settings.is_pooled:
            return (await self._run(made.text, made.arguments(values), is_gated=is_gated))[0]
        packed = made.packed(values)
        return await self._tried(lambda session: session.call(made, packed), is_gated=is_gated)

    async def _run(self, text: bytes, values: Arguments, *, is_gated: bool = False) -> list[Any]:
        if self.settings.is_pooled:
            return await self._tried(lambda session: self._execute_pooled(session, text, values), is_gated=is_gated)
        return await self._tried(lambda session: session.execute(text, values), is_gated=is_gated)

    async def _execute_pooled(self, session: Session, text: bytes, values: Arguments) -> list[Any]:
        """Run a statement on a connection that another client uses after the transaction."""
        async with session.transaction() as connection:
            await connection.execute(self._plans_here)
            return await session.execute(text, values)

    async def _tried(self, run: Callable[[Session], Awaitable[T]], *, is_gated: bool) -> T:
        for _ in range(_RETRIES_MAX):
            session = await self.borrow()
            try:
                if is_gated:
                    # It may have been closed while this waited for a connection.
                    self.gate.check()
                return await run(session)
            except _AGAIN as error:
                again = error
            except ConnectionLost:
                # Idle connections are broken, too: the next call opens a new one.
                await self._close_free()
                raise
            except psycopg.Error as error:
                if error.sqlstate == READ_ONLY:
                    await session.close()
                await self._refuse(error)
                raise
            finally:
                await self.give_back(session)
        raise again


def _with_plans(url: str, lock: str) -> str:
    """Return the URL with our planner settings and isolation level."""
    given = conninfo_to_dict(url).get("options") or ""
    ours = " ".join(f"-c {name}={value}" for name, value in (*PLANS.items(), _ISOLATION, ("lock_timeout", lock)))
    return make_conninfo(url, options=f"{ours} {given}".strip())
