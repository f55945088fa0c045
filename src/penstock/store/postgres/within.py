"""Statements of the store on a connection of somebody else's, in the transaction that it is in.

    psycopg.AsyncConnection            psycopg.Connection: in a thread, as it would hold up the event loop
    sqlalchemy.ext.asyncio.AsyncConnection, sqlalchemy.Connection, and what their `connection` is: the driver's below

Beginning and ending the transaction is the owner's business. A statement runs in a savepoint of its own, so that one
that is refused leaves the transaction as it was; only `fail` spoils it, and that is what it is for.

A connection with `autocommit`, and no transaction begun, is refused: whoever gives it believes in a transaction that
is not there.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg import pq
from psycopg.rows import tuple_row

T = TypeVar("T")

Raw = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
Values = Sequence[object] | Mapping[str, object]
# Teaches a cursor how the store writes its values.
Teach = Callable[[Any], None]
Row = tuple[Any, ...]

_FAIL = "DO $$ BEGIN RAISE EXCEPTION 'penstock: a lease has ended' USING ERRCODE = 'serialization_failure'; END $$"


class InThread(Protocol):
    """Runs a function that waits in a thread; `asyncio.to_thread` is one."""

    def __call__(self, function: Callable[..., T], /, *arguments: Any) -> Awaitable[T]: ...


class NotInTransaction(Exception):
    """A connection that is no connection to PostgreSQL by psycopg, or that is in no transaction."""


class Joined:
    """A transaction of somebody else's, on the connection of psycopg that it is on."""

    def __init__(self, raw: Raw, in_thread: InThread) -> None:
        self._raw = raw
        self._in_thread = in_thread

    async def fetch(self, statement: bytes, values: Values, teach: Teach | None = None) -> Row | None:
        """Run a statement in a savepoint of the transaction, and return its first row."""
        raw = self._raw
        if isinstance(raw, psycopg.Connection):
            return await self._in_thread(_fetch, raw, statement, values, teach)
        if raw.info.transaction_status == pq.TransactionStatus.IDLE:
            # Without it `transaction` below would begin one of its own, and commit it.
            await raw.execute("SELECT")
        async with raw.transaction(), raw.cursor(row_factory=tuple_row) as cursor:
            if teach is not None:
                teach(cursor)
            await cursor.execute(statement, values, binary=True)
            return await cursor.fetchone()

    async def fail(self) -> None:
        """Make the transaction fail: whatever its owner does, it cannot commit any more."""
        try:
            if isinstance(self._raw, psycopg.Connection):
                await self._in_thread(self._raw.execute, _FAIL)
            else:
                await self._raw.execute(_FAIL)
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
    return Joined(found, in_thread)


async def _below(connection: Any) -> object:
    # Known by what they can do, so that nobody needs SQLAlchemy who does not use it.
    if hasattr(connection, "get_raw_connection"):
        connection = await connection.get_raw_connection()
    elif hasattr(connection, "engine") and hasattr(connection, "connection"):
        connection = connection.connection
    return getattr(connection, "driver_connection", connection)


def _fetch(raw: psycopg.Connection[Any], statement: bytes, values: Values, teach: Teach | None) -> Row | None:
    if raw.info.transaction_status == pq.TransactionStatus.IDLE:
        raw.execute("SELECT")
    with raw.transaction(), raw.cursor(row_factory=tuple_row) as cursor:
        if teach is not None:
            teach(cursor)
        cursor.execute(statement, values, binary=True)
        return cursor.fetchone()
