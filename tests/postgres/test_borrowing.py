"""What is left on a connection of a caller's, and who hears of what was done there."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts, Receipt
from penstock.runtime.memory import memory_runtime
from penstock.store.postgres.caller_transaction import Transactions, transactions
from penstock.store.postgres.database import PLANS, TIMING, Timing
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema
from tests.postgres.waiting import until_waited_for
from tests.waiting import eventually

pytestmark = pytest.mark.real_time

_SHOW = "SELECT " + ", ".join(f"current_setting('{name}')" for name in PLANS)
_SCANNED = """
SELECT relname FROM pg_stat_xact_user_tables
WHERE seq_scan > 0 AND relname IN ('ready', 'marked', 'leased', 'lease', 'line', 'tenant', 'history_1')
"""


@asynccontextmanager
async def borrowing(
    *, is_fifo: bool = False, has_upkeep: bool = False, timing: Timing = TIMING
) -> AsyncIterator[tuple[PostgresStore, Transactions, psycopg.AsyncConnection[Any]]]:
    settings, runtime = replace(empty_schema(), timing=timing), memory_runtime()
    async with (
        await PostgresStore.open(
            settings, clock=runtime.clock, dice=runtime.dice, may_migrate=False, has_upkeep=has_upkeep
        ) as store,
        transactions(store, settings, asyncio.to_thread) as within,
        await psycopg.AsyncConnection.connect(settings.url) as connection,
    ):
        await store.create("orders", QueueSettings(is_fifo=is_fifo))
        yield store, within, connection


async def _rows(connection: psycopg.AsyncConnection[Any], statement: str) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement.encode())).fetchall()


@pytest.mark.parametrize("is_fifo", [False, True])
async def test_calls_in_a_transaction_of_a_caller_go_by_indexes(is_fifo: bool) -> None:
    async with borrowing(is_fifo=is_fifo) as (store, within, connection):
        for group in (b"a", b"", b"b"):
            # However small the tables are: what is planned now is kept by the connection until they are large.
            await within.send(connection, "orders", Drafts(bodies=[b"x"] * 3, groups=[group] * 3))
            await connection.commit()
            delivery = await store.lease("orders", want=3)
            assert delivery is not None
            assert await within.ack(connection, "orders", list(delivery.receipts()))
            assert await _rows(connection, _SCANNED) == []
            await connection.commit()


async def test_a_connection_plans_as_its_owner_wants_after_a_call() -> None:
    async with borrowing() as (store, within, connection):
        await connection.execute("SET enable_hashjoin = off")
        await connection.commit()
        await store._cache.get("orders")
        async with PostgresStore(store._database.settings, clock=store._clock, dice=store._dice) as other:
            await other.change("orders", QueueSettings(lease_ms=1_000))
        await connection.execute("SET LOCAL enable_seqscan = off")
        before = await _rows(connection, _SHOW)
        # It is refused at first, because the queue was changed, and made again.
        await within.send(connection, "orders", Drafts(bodies=[b"x"]))
        assert await _rows(connection, _SHOW) == before
        await connection.commit()
        after = dict(zip(PLANS, (await _rows(connection, _SHOW))[0], strict=True))
        assert (after["enable_seqscan"], after["enable_hashjoin"]) == ("on", "off")


async def test_few_of_many_transactions_carry_a_notification_and_all_are_heard_of() -> None:
    tell_s = 0.5
    async with borrowing(has_upkeep=True, timing=Timing(tell_s=tell_s)) as (store, within, connection):
        listener = await psycopg.AsyncConnection.connect(_url(store), autocommit=True)
        await listener.execute("LISTEN penstock")
        async with await psycopg.AsyncConnection.connect(_url(store)) as slow:
            await within.send(connection, "orders", Drafts(bodies=[b"x"]))
            await within.send(slow, "orders", Drafts(bodies=[b"slow"]))
            await connection.commit()
            began = time.monotonic()
            for _ in range(40):
                await within.send(connection, "orders", Drafts(bodies=[b"x"]))
                await connection.commit()
            # The first was told at once; whatever comes after it is counted for a while.
            heard = [each.payload async for each in listener.notifies(timeout=60.0, stop_after=1)]
            heard += [each.payload async for each in listener.notifies(timeout=1.0)]
            # One in a transaction and one by the store, each time.
            assert 1 <= len(heard) <= 2 * (time.monotonic() - began) / tell_s + 3
            # The one that is open still is told of when it ends, by and by.
            await slow.commit()
            async for each in listener.notifies(timeout=60.0, stop_after=1):
                heard.append(each.payload)
                assert each.payload.endswith(":orders")
            await listener.close()
        # What was heard may have been of the others: then this one is still to be told of.
        await eventually(lambda: not store._leadership._running)


async def test_others_go_on_while_a_change_of_the_queue_waits_for_an_open_transaction() -> None:
    async with borrowing() as (store, within, connection):
        await within.send(connection, "orders", Drafts(bodies=[b"x"]))
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            changing = tasks.create_task(store.change("orders", QueueSettings(lease_ms=1_000)))
            await until_waited_for(connection)
            await store.send("orders", Drafts(bodies=[b"y"]))
            assert await store.lease("orders", want=2) is not None
            assert not changing.done()
            await connection.commit()
        assert (await store.describe("orders")).settings.lease_ms == 1_000


@pytest.mark.parametrize(("is_fifo", "count"), [(False, 0), (True, 1)])
async def test_an_ack_wakes_others_only_where_something_is_behind_it(is_fifo: bool, count: int) -> None:
    async with borrowing(is_fifo=is_fifo) as (store, within, connection):
        await store.send("orders", Drafts(bodies=[b"x"], groups=[b"g"]))
        delivery = await store.lease("orders", want=1)
        assert delivery is not None
        receipts: list[Receipt] = list(delivery.receipts())
        async with await psycopg.AsyncConnection.connect(_url(store), autocommit=True) as listener:
            await listener.execute("LISTEN penstock")
            assert await within.ack(connection, "orders", receipts)
            await connection.commit()
            # What was told before is heard before.
            await connection.execute("NOTIFY penstock, 'the end'")
            await connection.commit()
            heard: list[str] = []
            while "the end" not in heard:
                heard += [each.payload async for each in listener.notifies(timeout=60, stop_after=1)]
            assert len(heard) == count + 1


def _url(store: PostgresStore) -> str:
    return store._database.settings.url
