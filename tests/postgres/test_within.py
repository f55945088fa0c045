"""Statements on connections of others: in their transaction, with whatever driver or library they came."""

import asyncio
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row, scalar_row

from penstock.store.postgres.caller_transaction import NotInTransaction, join
from tests.postgres.servers import shared_server

pytestmark = pytest.mark.real_time
INSERT = b"INSERT INTO kept VALUES (%s) RETURNING number"


@pytest.fixture(scope="module")
def dsn() -> str:
    dsn = shared_server().new_database()
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE kept (number int)")
    return dsn


def _kept(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        return [number for (number,) in connection.execute("DELETE FROM kept RETURNING number").fetchall()]


async def _put(connection: Any, number: int) -> None:
    joined = await join(connection, asyncio.to_thread)
    assert await joined.fetch(INSERT, (number,)) == (number,)


async def test_what_a_synchronous_connection_rolls_back_never_was(dsn: str) -> None:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        await _put(connection, 1)
        connection.rollback()
        await _put(connection, 2)
    assert _kept(dsn) == [2]


async def test_what_an_asynchronous_connection_rolls_back_never_was(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await _put(connection, 1)
        await connection.rollback()
        async with connection.transaction():
            await _put(connection, 2)
    assert _kept(dsn) == [2]


async def test_a_connection_of_sqlalchemy_will_do(dsn: str) -> None:
    url = dsn.replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        await _put(connection, 1)
    with engine.connect() as connection, connection.begin() as transaction:
        await _put(connection.connection, 2)
        transaction.rollback()
    engine.dispose()
    assert _kept(dsn) == [1]


@pytest.mark.parametrize("kind", [psycopg.ClientCursor, psycopg.RawCursor])
async def test_whatever_cursors_a_connection_makes_ours_are_our_own(dsn: str, kind: Any) -> None:
    with psycopg.connect(dsn, cursor_factory=kind, row_factory=scalar_row) as connection:
        await _put(connection, 1)
    asynchronous: Any = getattr(psycopg, f"Async{kind.__name__}")
    async with await psycopg.AsyncConnection.connect(
        dsn, cursor_factory=asynchronous, row_factory=scalar_row
    ) as connection:
        await _put(connection, 2)
    assert _kept(dsn) == [1, 2]


async def test_a_refused_statement_leaves_the_transaction_as_it_was(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await _put(connection, 1)
        with pytest.raises(psycopg.errors.DivisionByZero):
            await (await join(connection, asyncio.to_thread)).fetch(b"SELECT 1 / 0", ())
        await _put(connection, 2)
    assert _kept(dsn) == [1, 2]


@pytest.mark.parametrize("is_asynchronous", [True, False])
async def test_a_transaction_that_was_made_to_fail_cannot_commit(dsn: str, is_asynchronous: bool) -> None:
    if is_asynchronous:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await _put(connection, 1)
            await (await join(connection, asyncio.to_thread)).fail()
    else:
        with psycopg.connect(dsn) as plain:
            await _put(plain, 1)
            await (await join(plain, asyncio.to_thread)).fail()
    assert _kept(dsn) == []


async def test_a_connection_without_a_transaction_is_refused(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(NotInTransaction, match="in no transaction"):
            await join(connection, asyncio.to_thread)
        with connection.transaction():
            await _put(connection, 1)
    with pytest.raises(NotInTransaction, match="is a str"):
        await join(dsn, asyncio.to_thread)
    assert _kept(dsn) == [1]
