"""Statements of the store on a connection of somebody else's, in the transaction that it is in.

    psycopg.AsyncConnection            psycopg.Connection: in a thread, as it would hold up the event loop
    sqlalchemy.ext.asyncio.AsyncConnection, sqlalchemy.Connection, and what their `connection` is: the driver's below

Beginning and ending the transaction is the owner's business. A statement runs in a savepoint of its own, so that one
that is refused leaves the transaction as it was; only `fail` spoils it, and that is what it is for.

A connection with `autocommit`, and no transaction begun, is refused: whoever gives it believes in a transaction that
is not there.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import pq
from psycopg.rows import tuple_row

Raw = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
Values = Sequence[object] | Mapping[str, object]
# Teaches a cursor how the store writes its values.
Prepare = Callable[[Any], None]

_FAIL = "DO $$ BEGIN RAISE EXCEPTION 'penstock: a lease has ended' USING ERRCODE = 'serialization_failure'; END $$"


class NotInTransaction(Exception):
    """A connection that is no connection to PostgreSQL by psycopg, or that is in no transaction."""


async def raw_of(connection: object) -> Raw:
    """Return the connection of psycopg that is below whatever was given, in a transaction."""
    found = await _below(connection)
    if not isinstance(found, psycopg.Connection | psycopg.AsyncConnection):
        raise NotInTransaction(
            f"connection is a {type(connection).__name__}; it must be one of psycopg 3, or of SQLAlchemy over psycopg 3"
        )
    if found.autocommit and found.info.transaction_status == pq.TransactionStatus.IDLE:
        raise NotInTransaction(
            "connection is in autocommit and in no transaction: begin one, `with connection.transaction():`"
        )
    return found


async def fetch(raw: Raw, statement: bytes, values: Values, prepare: Prepare | None = None) -> tuple[Any, ...] | None:
    """Run a statement in a savepoint of the transaction, and return its first row."""
    if isinstance(raw, psycopg.AsyncConnection):
        await _begin(raw)
        async with raw.transaction(), raw.cursor(row_factory=tuple_row) as cursor:
            _taught(cursor, prepare)
            await cursor.execute(statement, values, binary=True)
            return await cursor.fetchone()
    return await asyncio.to_thread(_fetch, raw, statement, values, prepare)


async def fail(raw: Raw) -> None:
    """Make the transaction fail: whatever its owner does, it cannot commit any more."""
    try:
        if isinstance(raw, psycopg.AsyncConnection):
            await raw.execute(_FAIL)
        else:
            await asyncio.to_thread(raw.execute, _FAIL)
    except psycopg.errors.SerializationFailure:
        pass


async def _below(connection: Any) -> object:
    # Known by what they can do, so that nobody needs SQLAlchemy who does not use it.
    if hasattr(connection, "get_raw_connection"):
        connection = await connection.get_raw_connection()
    elif hasattr(connection, "engine") and hasattr(connection, "connection"):
        connection = connection.connection
    return getattr(connection, "driver_connection", connection)


async def _begin(raw: psycopg.AsyncConnection[Any]) -> None:
    # Without it `transaction` below would begin one of its own, and commit it.
    if raw.info.transaction_status == pq.TransactionStatus.IDLE:
        await raw.execute("SELECT")


def _fetch(
    raw: psycopg.Connection[Any], statement: bytes, values: Values, prepare: Prepare | None
) -> tuple[Any, ...] | None:
    if raw.info.transaction_status == pq.TransactionStatus.IDLE:
        raw.execute("SELECT")
    with raw.transaction(), raw.cursor(row_factory=tuple_row) as cursor:
        _taught(cursor, prepare)
        cursor.execute(statement, values, binary=True)
        return cursor.fetchone()


def _taught(cursor: Any, prepare: Prepare | None) -> None:
    if prepare is not None:
        prepare(cursor)
