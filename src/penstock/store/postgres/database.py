"""The connections of a store, and how a call is made on one of them.

Laws of this file
-----------------
1. A call is one statement in a transaction of its own, so one round trip.
2. What the database refuses because of others (a deadlock, a serialization) is tried
   again here: nothing of it was done.
3. If the connection breaks, nobody knows what was done. `Lost` says so; a call that
   has an operation number is made again under the same number, which the database
   takes only once: then what the first one answered is read.
4. A connection that comes back from a call in any state but idle is closed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from penstock.store.interface import StoreUnreachable
from penstock.store.postgres.columns import DUMPERS
from penstock.store.postgres.statements import Function, check_schema, function, statement

_RETRIES_MAX = 20
# Every statement has one good plan, by an index. A table of messages is empty now and has millions of rows a minute
# later, before PostgreSQL has counted them: a plan for an empty table must not be kept.
_PLANS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
_PLANS_HERE = ";".join(f"SET LOCAL {name} = {value}" for name, value in _PLANS.items()).encode()
Arguments: TypeAlias = Sequence[Any] | Mapping[str, Any]
_AGAIN = (errors.SerializationFailure, errors.DeadlockDetected)


class Lost(StoreUnreachable):
    """The connection broke, and what it was asked for may be done or not."""


class NotDurable(Exception):
    """The database does not promise what a store of queues needs."""


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

    def __post_init__(self) -> None:
        check_schema(self.schema)
        if self.connections_max < 1:
            raise ValueError(f"connections_max is {self.connections_max}; it is at least 1")


class Session:
    """A connection, with the one cursor that all its statements use."""

    __slots__ = ("connection", "cursor")

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection
        self.cursor = connection.cursor(binary=True)


class Database:
    def __init__(self, settings: PostgresSettings) -> None:
        self.settings = settings
        self._free: list[Session] = []
        self._places = asyncio.Semaphore(settings.connections_max)
        self._is_closed = False

    async def connect(self) -> AsyncConnection:
        """Open a connection that the caller owns."""
        url = self.settings.url if self.settings.is_pooled else _with_plans(self.settings.url)
        try:
            connection = await AsyncConnection.connect(url, autocommit=True)
        except psycopg.OperationalError as error:
            raise Lost(str(error)) from error
        connection.prepare_threshold = None if self.settings.is_pooled else 2
        for kind, dumper in DUMPERS:
            connection.adapters.register_dumper(kind, dumper)
        return connection

    async def close(self) -> None:
        self._is_closed = True
        await self._close_free()

    async def _close_free(self) -> None:
        while self._free:
            await self._free.pop().connection.close()

    # Two methods rather than a context manager: they are on the way of every verb.

    async def borrow(self) -> Session:
        """Return a connection that is nobody else's until it is given back."""
        await self._places.acquire()
        try:
            return self._free.pop() if self._free else Session(await self.connect())
        except BaseException:
            self._places.release()
            raise

    async def give_back(self, session: Session) -> None:
        connection = session.connection
        try:
            is_idle = not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
            if is_idle and not self._is_closed:
                self._free.append(session)
            else:
                await connection.close()
        finally:
            self._places.release()

    async def call(self, name: str, *values: Any) -> Any:
        """Call one of our functions and return the one row it answers with."""
        made = function(name, self.settings.schema)
        rows = await self._run(made.text, made.arguments(values))
        return rows[0]

    async def ask(self, name: str, *values: Any, **named: Any) -> list[Any]:
        """Run a statement of `sql/` that only reads, and return its rows."""
        return await self.read(statement(name, self.settings.schema), named or values)

    async def read(self, text: bytes, values: Arguments = ()) -> list[Any]:
        try:
            return await self._run(text, values)
        except Lost:
            # To look twice harms nobody; if there is no database any more, connecting says so.
            return await self._run(text, values)

    async def call_once(self, name: str, *values: Any, operation: int) -> Any:
        """Call a function that notes its answer under an operation number, its last argument. Returns the answer.

        Raises `Lost` only if the database cannot be reached again.
        """
        made = function(name, self.settings.schema)
        arguments = made.arguments((*values, operation))
        try:
            return (await self._run(made.text, arguments))[0][0]
        except Lost:
            return await self._settle(made, arguments, operation)

    async def _settle(self, made: Function, arguments: Sequence[object], operation: int) -> Any:
        """Find out what became of an operation, and make it if nothing did."""
        answer = f"SELECT answer FROM {self.settings.schema}.operation WHERE id = %s".encode()
        while True:
            found = await self._run(answer, (operation,))
            if found:
                return found[0][0]
            try:
                return (await self._run(made.text, arguments))[0][0]
            except (Lost, errors.UniqueViolation):
                # It was still on its way, or the connection broke once more.
                continue

    async def _run(self, text: bytes, values: Arguments) -> list[Any]:
        for _ in range(_RETRIES_MAX):
            session = await self.borrow()
            try:
                if self.settings.is_pooled:
                    return await _execute_pooled(session, text, values)
                return await _execute(session, text, values)
            except _AGAIN as error:
                again = error
            except Lost:
                # Whatever broke it has broken those that are idle, too: the next call begins with a new one.
                await self._close_free()
                raise
            finally:
                await self.give_back(session)
        raise again


async def _execute(session: Session, text: bytes, values: Arguments) -> list[Any]:
    cursor = session.cursor
    try:
        await cursor.execute(text, values)
        return await cursor.fetchall()
    except psycopg.OperationalError as error:
        if session.connection.closed:
            raise Lost(str(error)) from error
        raise


async def _execute_pooled(session: Session, text: bytes, values: Arguments) -> list[Any]:
    """As `_execute`, on a connection that is somebody else's after the transaction."""
    connection = session.connection
    try:
        async with connection.transaction():
            await connection.execute(_PLANS_HERE)
            return await _execute(session, text, values)
    except psycopg.OperationalError as error:
        if connection.closed:
            raise Lost(str(error)) from error
        raise


def _with_plans(url: str) -> str:
    """Return how to connect so that statements are planned as they were meant to be."""
    given = conninfo_to_dict(url).get("options") or ""
    ours = " ".join(f"-c {name}={value}" for name, value in _PLANS.items())
    return make_conninfo(url, options=f"{ours} {given}".strip())


async def check_durable(connection: AsyncConnection, *, may_lose: bool) -> list[str]:
    """Raise `NotDurable` if the server does not sync what it writes; return what is doubtful besides."""
    found = await connection.execute("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
    row = await found.fetchone()
    assert row is not None
    fsync, commit = row
    if fsync == "off" and not may_lose:
        raise NotDurable("fsync is off: a crash of the machine may destroy the database; turn it on, or allow it")
    if commit == "off" and not may_lose:
        return ["synchronous_commit is off: a crash may lose what was answered a moment before"]
    return []
