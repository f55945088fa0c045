"""Statements of the store on a connection of somebody else's, in the transaction that it is in.

    psycopg.AsyncConnection            psycopg.Connection: in a thread, as it would hold up the event loop
    sqlalchemy.ext.asyncio.AsyncConnection, sqlalchemy.Connection, and what their `connection` is: the driver's below

Beginning and ending the transaction is the owner's business. A statement runs in a savepoint of its own, so that one
that is refused leaves the transaction as it was; only `fail` spoils it, and that is what it is for.

A connection with `autocommit`, and no transaction begun, is refused: whoever gives it believes in a transaction that
is not there. One of SQLAlchemy that has begun none yet begins it here, as it would by any statement of its own: else it
would know of nothing to commit or to roll back.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import psycopg
from psycopg import pq
from psycopg.rows import tuple_row

T = TypeVar("T")

Raw = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
Values = Sequence[object] | Mapping[str, object]
# Teaches a cursor how the store writes its values.
Teach = Callable[[Any], None]
Row = tuple[Any, ...]


class Asked(NamedTuple):
    """What to run, and what after it, with values out of the row that it has returned."""

    statement: bytes
    values: Values
    teach: Teach | None = None
    after: bytes | None = None
    after_values: Callable[[Row], Values] = tuple


_FAIL = "DO $$ BEGIN RAISE EXCEPTION 'penstock: a lease has ended' USING ERRCODE = 'serialization_failure'; END $$"


class InThread(Protocol):
    """Runs a function that waits in a thread; `asyncio.to_thread` is one."""

    def __call__(self, function: Callable[..., T], /, *arguments: Any) -> Awaitable[T]: ...


class NotInTransaction(Exception):
    """A connection that is no connection to PostgreSQL by psycopg, or that is in no transaction."""


class Joined:
    """A transaction of somebody else's, on the connection of psycopg that it is on."""

    def __init__(self, raw: Raw, in_thread: InThread, *, is_two_phase: bool = False) -> None:
        self.raw = raw
        self._in_thread = in_thread
        # Whether it is to be prepared before it commits: nothing in it may notify anybody then.
        self.is_two_phase = is_two_phase

    async def fetch(self, statement: bytes, values: Values) -> Row | None:
        """Run a statement in a savepoint of the transaction, and return its first row."""
        return await self.run(Asked(statement, values))

    async def run(self, asked: Asked) -> Row | None:
        """Run one or two statements in a savepoint of the transaction, and return the first row of the first."""
        raw = self.raw
        if isinstance(raw, psycopg.Connection):
            return await self._in_thread(_run, raw, asked)
        if raw.info.transaction_status == pq.TransactionStatus.IDLE:
            # Without it `transaction` below would begin one of its own, and commit it.
            await _cursor(raw).execute("SELECT")
        async with raw.transaction(), _cursor(raw) as cursor:
            if asked.teach is not None:
                asked.teach(cursor)
            await cursor.execute(asked.statement, asked.values, binary=True)
            row = await cursor.fetchone()
            if asked.after is not None and row is not None:
                await cursor.execute(asked.after, asked.after_values(row))
            return row

    async def fail(self) -> None:
        """Make the transaction fail: whatever its owner does, it cannot commit any more."""
        try:
            if isinstance(self.raw, psycopg.Connection):
                await self._in_thread(_plain_cursor(self.raw).execute, _FAIL)
            else:
                await _cursor(self.raw).execute(_FAIL)
        except psycopg.errors.SerializationFailure:
            pass


async def join(connection: object, in_thread: InThread) -> Joined:
    """Join the transaction of whatever connection was given. Raises `NotInTransaction`."""
    found = await _below(connection)
    if not isinstance(found, psycopg.Connection | psycopg.AsyncConnection):
        raise NotInTransaction(
            f"connection is a {type(connection).__name__}; it must be one of psycopg 3, or of SQLAlchemy over psycopg 3"
        )
    if found.autocommit and found.info.transaction_status == pq.TransactionStatus.IDLE:
        raise NotInTransaction(
            "connection is in autocommit and in no transaction: begin one, `with connection.transaction():`"
        )
    await _begin(connection)
    return Joined(found, in_thread, is_two_phase=_is_two_phase(connection, found))


async def _below(connection: Any) -> object:
    # Known by what they can do, so that nobody needs SQLAlchemy who does not use it.
    if hasattr(connection, "get_raw_connection"):
        connection = await connection.get_raw_connection()
    elif hasattr(connection, "engine") and hasattr(connection, "connection"):
        connection = connection.connection
    return getattr(connection, "driver_connection", connection)


async def _begin(connection: Any) -> None:
    if hasattr(connection, "in_transaction") and not connection.in_transaction():
        begun = connection.begin()
        if hasattr(begun, "__await__"):
            await begun


def _is_two_phase(connection: Any, raw: Raw) -> bool:
    """Whether it was begun by `tpc_begin` of psycopg, or by `begin_twophase` of SQLAlchemy."""
    begun = connection.get_transaction() if hasattr(connection, "get_transaction") else None
    # Psycopg has no public word for it.
    return raw._tpc is not None or hasattr(begun, "prepare")


# Cursors of our own making: those that the owner of the connection has chosen may write values in another way, or want
# other rows.


def _cursor(raw: psycopg.AsyncConnection[Any]) -> psycopg.AsyncCursor[Row]:
    return psycopg.AsyncCursor(raw, row_factory=tuple_row)


def _plain_cursor(raw: psycopg.Connection[Any]) -> psycopg.Cursor[Row]:
    return psycopg.Cursor(raw, row_factory=tuple_row)


def _run(raw: psycopg.Connection[Any], asked: Asked) -> Row | None:
    if raw.info.transaction_status == pq.TransactionStatus.IDLE:
        _plain_cursor(raw).execute("SELECT")
    with raw.transaction(), _plain_cursor(raw) as cursor:
        if asked.teach is not None:
            asked.teach(cursor)
        cursor.execute(asked.statement, asked.values, binary=True)
        row = cursor.fetchone()
        if asked.after is not None and row is not None:
            cursor.execute(asked.after, asked.after_values(row))
        return row
