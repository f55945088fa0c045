"""Sends and acks in a caller's own transaction: they commit with its writes, or not at all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

import penstock
from penstock.client import Client, StaleReceipt, TransactionRequired, WrongDatabase
from penstock.client.queue import Queue
from tests.postgres.servers import shared_server

pytestmark = pytest.mark.real_time


@dataclass
class Shop:
    """A database with queues and a table of its own in it."""

    dsn: str
    client: Client

    @property
    def orders(self) -> Queue:
        return self.client.queue("orders")

    async def waiting(self) -> int:
        return (await self.orders.describe()).current_message_count

    def shipped(self) -> list[int]:
        with psycopg.connect(self.dsn) as connection:
            return [number for (number,) in connection.execute("SELECT number FROM shipped ORDER BY number").fetchall()]

    def connection(self) -> Any:
        return psycopg.AsyncConnection.connect(self.dsn)


async def _ship(connection: psycopg.AsyncConnection[Any], number: int) -> None:
    await connection.execute("INSERT INTO shipped VALUES (%s)", (number,))


@pytest.fixture(scope="module")
def dsn() -> str:
    dsn = shared_server().new_database()
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE shipped (number int)")
    return dsn


@asynccontextmanager
async def _shop(dsn: str, **settings: Any) -> AsyncIterator[Shop]:
    """The shop, with an empty queue and nothing shipped: one schema serves all stories."""
    with psycopg.connect(dsn) as connection:
        connection.execute("TRUNCATE shipped")
    async with penstock.connect(dsn) as client:
        await client.create_queue("orders", **settings)
        try:
            yield Shop(dsn, client)
        finally:
            await client.queue("orders").delete(with_dead_letters=True)


async def test_a_message_of_a_rolled_back_transaction_never_was(dsn: str) -> None:
    async with _shop(dsn) as shop:
        async with await shop.connection() as connection:
            await _ship(connection, 1)
            await shop.orders.send({"order": 1}, connection=connection)
            assert await shop.orders.receive() is None
            await connection.rollback()
            await _ship(connection, 2)
            ids = await shop.orders.send_many([b"a", penstock.Draft(data="b", priority="HIGH")], connection=connection)

        assert shop.shipped() == [2]
        batch = await shop.orders.receive(limit=10)
        assert {message.id: message.body for message in batch} == dict(zip(ids, [b"a", b"b"], strict=True))


async def test_a_consumer_is_woken_by_a_commit(dsn: str) -> None:
    async with _shop(dsn) as shop, await shop.connection() as connection, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(shop.orders.receive(wait_s=60))
        await shop.orders.send(b"a", connection=connection)
        await connection.commit()
        message = await waiting
        assert message is not None
        assert message.body == b"a"


async def test_work_and_its_ack_commit_together_or_not_at_all(dsn: str) -> None:
    async with _shop(dsn) as shop:
        await shop.orders.send(b"1")
        message = await shop.orders.receive()
        assert message is not None
        async with await shop.connection() as connection:
            await _ship(connection, 1)
            await message.ack(connection=connection)
            await connection.rollback()
            assert (shop.shipped(), await shop.waiting()) == ([], 1)
            await _ship(connection, 1)
            await message.ack(connection=connection)
        assert (shop.shipped(), await shop.waiting()) == ([1], 0)


async def test_a_worker_that_lost_its_lease_cannot_commit(dsn: str) -> None:
    async with _shop(dsn) as shop:
        await shop.orders.send_many([b"1", b"2"])
        batch = await shop.orders.receive(limit=2)
        await batch[0].ack()
        async with await shop.connection() as connection:
            await _ship(connection, 1)
            with pytest.raises(StaleReceipt):
                await shop.orders.ack(batch, connection=connection)
            # Who goes on all the same gets nothing for it.
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                await _ship(connection, 2)
        assert (shop.shipped(), await shop.waiting()) == ([], 1)


async def test_a_transactional_handler_ships_each_order_once(dsn: str) -> None:
    async with _shop(dsn, max_deliveries=5) as shop:
        await shop.orders.send_many([b"%d" % number for number in range(20)])
        worker = penstock.Worker(shop.client)
        failed: set[bytes] = set()

        @worker.handler("orders", transactional=True, retry={RuntimeError: 0})
        async def ship(message: penstock.Message, connection: psycopg.AsyncConnection[Any]) -> None:
            await _ship(connection, int(message.body))
            if message.body not in failed:
                failed.add(message.body)
                raise RuntimeError("the first time, everything goes wrong after the write")

        await worker.run(until_idle=True)
        assert shop.shipped() == list(range(20))
        assert await shop.waiting() == 0
        assert (worker.stats()["orders"].done, worker.stats()["orders"].failed) == (20, 20)


async def test_a_plain_function_has_a_plain_connection(dsn: str) -> None:
    async with _shop(dsn) as shop:
        await shop.orders.send(b"1")
        worker = penstock.Worker(shop.client)

        @worker.handler("orders", transactional=True)
        def ship(message: penstock.Message, connection: psycopg.Connection[Any]) -> None:
            connection.execute("INSERT INTO shipped VALUES (%s)", (int(message.body),))

        await worker.run(until_idle=True)
        assert (shop.shipped(), await shop.waiting()) == ([1], 0)


def test_a_program_without_an_event_loop_has_transactions_too(dsn: str) -> None:
    with penstock.connect(dsn) as client, psycopg.connect(dsn) as connection:
        client.create_queue("letters")
        letters = client.queue("letters")
        letters.send(b"a", connection=connection)
        connection.rollback()
        assert letters.receive() is None
        letters.send(b"b", connection=connection)
        connection.commit()
        message = letters.receive()
        assert message is not None
        message.ack(connection=connection)
        connection.commit()
        assert letters.describe().current_message_count == 0
        letters.delete()


async def test_a_transaction_takes_a_client_of_the_database(dsn: str) -> None:
    async with penstock.connect("memory:") as client:
        await client.create_queue("orders")
        with psycopg.connect(dsn) as connection, pytest.raises(TransactionRequired, match="postgresql://"):
            await client.queue("orders").send(b"a", connection=connection)
    async with _shop(dsn) as shop:
        with psycopg.connect(dsn, autocommit=True) as connection, pytest.raises(TransactionRequired):
            await shop.orders.send(b"a", connection=connection)
        with psycopg.connect(dsn) as connection, pytest.raises(penstock.QueueNotFound):
            await shop.client.queue("nowhere").send(b"a", connection=connection)


def test_a_connection_to_another_database_writes_nothing_there() -> None:
    here, there, empty = (shared_server().new_database() for _ in range(3))
    with penstock.connect(here) as client, penstock.connect(there) as other:
        # Both are the first of their database, so they have one number.
        client.create_queue("orders")
        other.create_queue("letters")
        for dsn in (there, empty):
            with psycopg.connect(dsn) as connection, pytest.raises(WrongDatabase, match="nothing was written"):
                client.queue("orders").send("teapot", connection=connection)
        client.queue("orders").send("teapot")
        message = client.queue("orders").receive()
        assert message is not None
        with psycopg.connect(there) as connection, pytest.raises(WrongDatabase):
            message.ack(connection=connection)
        assert other.queue("letters").describe().current_message_count == 0
        message.ack()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_has_queues_and_transactions_too(encoding: str) -> None:
    dsn = shared_server().new_database(encoding)
    with penstock.connect(dsn) as client:
        client.create_queue("orders")
        orders = client.queue("orders")
        with psycopg.connect(dsn) as connection:
            orders.send("tee ☕", attributes={"für": "ü"}, connection=connection)
        message = orders.receive()
        assert message is not None
        assert (message.text, message.attributes) == ("tee ☕", {"für": "ü"})
        message.release(error="verschüttet ☕ \0", delay_s=0)
        orders.escalate([message.id], priority="CRITICAL", actor="ada", reason="eilig ☕")
        (again,) = orders.receive(limit=1)
        with psycopg.connect(dsn) as connection:
            again.ack(connection=connection)
        assert [queue.queue_name for queue in client.queues()] == ["orders"]
