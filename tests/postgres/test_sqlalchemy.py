"""Sends and acks in transactions of SQLAlchemy: with its connections, and with the raw ones below them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

import penstock
from penstock.client import StaleReceipt, TransactionRequired
from penstock.client.queue import Queue
from tests.postgres.servers import shared_server

pytestmark = pytest.mark.real_time
SHIP = sqlalchemy.text("INSERT INTO shipped VALUES (:number)")


@pytest.fixture(scope="module")
def dsn() -> str:
    dsn = shared_server().new_database()
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE shipped (number int)")
    return dsn


@pytest.fixture
def url(dsn: str) -> str:
    return dsn.replace("postgresql://", "postgresql+psycopg://")


def _shipped(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        return sorted(number for (number,) in connection.execute("DELETE FROM shipped RETURNING number").fetchall())


@asynccontextmanager
async def _orders(dsn: str) -> AsyncIterator[Queue]:
    async with penstock.connect(dsn) as client:
        await client.create_queue("orders")
        try:
            yield client.queue("orders")
        finally:
            await client.queue("orders").delete()


@asynccontextmanager
async def _engine(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url)
    try:
        yield engine
    finally:
        await engine.dispose()


async def _bodies(orders: Queue) -> list[bytes]:
    return sorted(message.body for message in await orders.receive(limit=10))


async def test_what_an_async_engine_rolls_back_was_never_sent(dsn: str, url: str) -> None:
    async with _orders(dsn) as orders, _engine(url) as engine:
        async with engine.begin() as connection:
            await connection.execute(SHIP, {"number": 1})
            await orders.send(b"one", connection=connection)
        async with engine.connect() as connection:
            await connection.execute(SHIP, {"number": 2})
            await orders.send(b"two", connection=connection)
            await connection.rollback()
            # Nothing of its own before: the transaction begins with the send.
            await orders.send(b"nor this", connection=connection)
            await connection.rollback()
            await connection.execute(SHIP, {"number": 3})
            await orders.send(b"three", connection=await connection.get_raw_connection())
            await connection.commit()
        async with engine.connect() as connection:
            await orders.send(b"alone", connection=connection)
            await connection.commit()
        async with engine.begin() as connection:
            raw = (await connection.get_raw_connection()).driver_connection
            await orders.send(b"four", connection=raw)
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(SHIP, {"number": 5})
            await orders.send(b"five", connection=await session.connection())
        assert await _bodies(orders) == [b"alone", b"five", b"four", b"one", b"three"]
        assert _shipped(dsn) == [1, 3, 5]


async def test_an_ack_commits_with_an_async_engine_or_not_at_all(dsn: str, url: str) -> None:
    async with _orders(dsn) as orders, _engine(url) as engine:
        await orders.send(b"one")
        message = await orders.receive()
        assert message is not None
        async with engine.connect() as connection:
            await connection.execute(SHIP, {"number": 1})
            await message.ack(connection=connection)
            await connection.rollback()
        assert (await orders.describe()).current_message_count == 1
        async with engine.begin() as connection:
            await connection.execute(SHIP, {"number": 2})
            await message.ack(connection=connection)
        assert ((await orders.describe()).current_message_count, _shipped(dsn)) == (0, [2])


async def test_a_stale_receipt_makes_a_transaction_of_sqlalchemy_fail(dsn: str, url: str) -> None:
    async with _orders(dsn) as orders, _engine(url) as engine:
        await orders.send(b"one")
        message = await orders.receive()
        assert message is not None
        await message.ack()
        async with engine.connect() as connection:
            await connection.execute(SHIP, {"number": 1})
            with pytest.raises(StaleReceipt):
                await message.ack(connection=connection)
            with pytest.raises(sqlalchemy.exc.InternalError):
                await connection.execute(SHIP, {"number": 2})
        assert _shipped(dsn) == []


def test_a_synchronous_engine_sends_and_acks_in_its_transactions(
    dsn: str, url: str, request: pytest.FixtureRequest
) -> None:
    engine = sqlalchemy.create_engine(url)
    request.addfinalizer(engine.dispose)
    with penstock.connect(dsn) as client:
        client.create_queue("orders")
        orders = client.queue("orders")
        with engine.connect() as connection:
            orders.send(b"never", connection=connection)
            connection.rollback()
            connection.execute(SHIP, {"number": 1})
            orders.send(b"one", connection=connection.connection)
            connection.commit()
        message: Any = orders.receive()
        assert message.body == b"one"
        with engine.begin() as connection:
            connection.execute(SHIP, {"number": 2})
            message.ack(connection=connection)
        assert orders.describe().current_message_count == 0
        orders.delete()
    assert _shipped(dsn) == [1, 2]


async def test_an_engine_that_commits_by_itself_is_refused(dsn: str, url: str) -> None:
    async with _orders(dsn) as orders, _engine(url) as engine, engine.connect() as connection:
        alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(TransactionRequired, match="autocommit"):
            await orders.send(b"one", connection=alone)
