"""Sends and acks in transactions that are prepared first and committed later, as over several databases."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

import penstock
from penstock.client.queue import Queue
from tests.postgres.servers import Server

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with Server(options={"max_prepared_transactions": "10"}) as server:
        yield server.dsn


@asynccontextmanager
async def _orders(dsn: str, **settings: Any) -> AsyncIterator[Queue]:
    async with penstock.connect(dsn) as client:
        await client.create_queue("orders", **settings)
        try:
            yield client.queue("orders")
        finally:
            await client.queue("orders").delete()


async def test_what_is_sent_in_two_phases_is_there_after_the_second_and_wakes_who_waits(dsn: str) -> None:
    async with _orders(dsn) as orders, await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.tpc_begin("sent")
        await orders.send("a", connection=connection)
        await connection.tpc_prepare()
        assert await orders.receive() is None
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(orders.receive(wait_s=120))
            await connection.tpc_commit()
        message = waiting.result()
        assert message is not None
        assert message.text == "a"
        await message.ack()


async def test_what_is_acked_in_two_phases_may_be_rolled_back_after_the_first(dsn: str) -> None:
    async with _orders(dsn, fifo=True) as orders, await psycopg.AsyncConnection.connect(dsn) as connection:
        await orders.send("a", group="g")
        message = await orders.receive()
        assert message is not None
        for end in (connection.tpc_rollback, connection.tpc_commit):
            await connection.tpc_begin("acked")
            await message.ack(connection=connection)
            await connection.tpc_prepare()
            await end()
        assert (await orders.describe()).current_message_count == 0


async def test_a_session_of_sqlalchemy_in_two_phases_will_do(dsn: str) -> None:
    engine = sqlalchemy.create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
    async with _orders(dsn) as orders:
        with Session(engine, twophase=True) as session:
            await orders.send("a", connection=session.connection())
            session.prepare()
            session.commit()
        assert (await orders.describe()).current_message_count == 1
    engine.dispose()
