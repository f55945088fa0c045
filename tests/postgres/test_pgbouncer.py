"""Behind a real PgBouncer in transaction mode: every verb works, and what cannot work is replaced by looking."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.runtime.system import SystemClock, SystemDice
from penstock.store.interface import Outcome
from penstock.store.postgres.connection import ConnectionLost
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.store import PostgresStore
from tests.cli.servers import Served
from tests.conformance.stores import STORIES, InPostgres, Story, play
from tests.postgres.poolers import Pooler, needs_pgbouncer
from tests.postgres.schemas import empty_schema
from tests.postgres.servers import shared_server
from tests.waiting import eventually

pytestmark = [pytest.mark.real_time, needs_pgbouncer]

MODULES = [
    f"tests.conformance.test_queue_store_{name}"
    for name in ("leases", "sending", "order", "operating", "dead_letters", "history")
]
for module in MODULES:
    importlib.import_module(module)
# Every sixth story of these: the others go the same ways.
SOME = [story for _, story in sorted({(each.__module__, each.__name__): each for each in STORIES}.items())]
SOME = [story for story in SOME if story.__module__ in MODULES][::6]


class BehindPooler(InPostgres):
    """No store can tell whether it is alone, so none waits until it is."""

    async def reopen(self) -> None:
        await self.store.close()
        await self.open()

    crash = reopen


@pytest.fixture(scope="module")
def pooler() -> Iterator[Pooler]:
    with Pooler(shared_server()) as pooler:
        yield pooler


@pytest.fixture
def dsn() -> str:
    """A database of its own, by the way that leads around the pooler."""
    return shared_server().new_database()


@asynccontextmanager
async def opened(url: str, *, is_pooled: bool = True) -> AsyncIterator[PostgresStore]:
    # Only a busy machine is silent here.
    settings = PostgresSettings(url=url, is_pooled=is_pooled, silence_s=60)
    async with await PostgresStore.open(settings, clock=SystemClock(), dice=SystemDice()) as store:
        yield store


@pytest.mark.parametrize("story", SOME, ids=lambda story: story.__name__)
async def test_a_story_of_every_store_is_told_behind_a_pooler_too(story: Story, pooler: Pooler) -> None:
    around = empty_schema()
    # PgBouncer takes no options of a session.
    url = pooler.url(around.url.partition("&options")[0])
    await play(story, BehindPooler(replace(around, url=url, is_pooled=True)))


async def test_a_store_that_was_not_told_of_the_pooler_is_refused_with_the_reason(pooler: Pooler, dsn: str) -> None:
    with pytest.raises(ConnectionLost, match="--pooled"):
        async with opened(pooler.url(dsn), is_pooled=False):
            pass


async def test_more_programs_than_connections_share_a_pool(pooler: Pooler, dsn: str) -> None:
    """Twelve at a time on four connections, whose owner is another one after each transaction."""
    async with opened(pooler.url(dsn)) as first, opened(pooler.url(dsn)) as second:
        await first.create("orders", QueueSettings())

        async def work(store: PostgresStore, number: int) -> None:
            for _ in range(5):
                await store.send("orders", Drafts(bodies=[b"a"] * 3, groups=[b"%d" % number] * 3))
                # As many wait as were sent for each who asks; but others may have just taken those that are seen.
                while (delivery := await store.lease("orders", want=3)) is None:
                    pass
                assert set(await store.ack("orders", delivery.receipts())) == {Outcome.DONE}

        async with asyncio.TaskGroup() as tasks:
            for number in range(12):
                tasks.create_task(work((first, second)[number % 2], number))
        assert (await first.counts("orders")).live == 0
    # No lock stays with a connection of another client; and there are no more of them than the pool has. One
    # that was ended in the middle of something is there for a moment yet, with what it holds.
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await eventually(lambda: _is_true(connection, _SETTLED))


# No more connections than those of the pool, and the one that asks.
_SETTLED = b"""
SELECT (
    SELECT count(*) = 0 FROM pg_locks AS held JOIN pg_database AS here ON here.oid = held.database
    WHERE here.datname = current_database() AND locktype = 'advisory'
) AND (
    SELECT count(*) <= 4 + 1 FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
)
"""


async def _is_true(connection: psycopg.AsyncConnection[Any], question: bytes) -> bool:
    row = await (await connection.execute(question)).fetchone()
    return row == (True,)


async def test_who_waits_behind_a_pooler_finds_what_others_sent(pooler: Pooler, dsn: str) -> None:
    """No notification passes the pooler, so the store looks; with a connection around the pooler it is notified."""
    async with opened(pooler.url(dsn)) as behind, opened(dsn, is_pooled=False) as around:
        await behind.create("orders", QueueSettings())
        for here, elsewhere in ((behind, around), (around, behind)):
            await here.counts("orders")
            woken = asyncio.Event()
            await asyncio.sleep(0.2)  # Real time: nothing announces that no older notification is on its way.
            here.watch(lambda queue, woken=woken: woken.set() if queue == "orders" else None)  # type: ignore[misc]
            await elsewhere.send("orders", Drafts(bodies=[b"a"]))
            async with asyncio.timeout(60):
                await woken.wait()
        assert await behind._leadership._leads()
        assert await around._leadership._leads()


async def test_dead_letters_are_sent_back_from_behind_a_pooler(
    pooler: Pooler, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_POSTGRES_TRANSACTION_POOLING", "true")
    async with penstock.connect(pooler.url(dsn)) as client:
        await client.create_queue("orders", max_deliveries=1)
        orders, dead = client.queue("orders"), client.queue("orders.dead")
        await orders.send("a")
        message = await orders.receive()
        assert message is not None
        await message.reject("no")
        assert await orders.receive() is None
        task = await dead.redrive()
        again = await orders.receive(wait_s=60)
        assert again is not None

        async def is_counted() -> bool:
            return (await dead.redrive_task(task.task_id)).moved_total == 1

        # It is counted a moment after it can be received.
        await eventually(is_counted)


async def test_a_transaction_of_ones_own_goes_through_the_pooler(
    pooler: Pooler, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_POSTGRES_TRANSACTION_POOLING", "true")
    url = pooler.url(dsn)
    async with penstock.connect(url) as client:
        await client.create_queue("orders")
        orders = client.queue("orders")
        async with await psycopg.AsyncConnection.connect(url, prepare_threshold=None) as connection:
            await orders.send(b"never", connection=connection)
            await connection.rollback()
            await orders.send(b"once", connection=connection)
        message = await orders.receive(wait_s=60)
        assert message is not None
        assert message.body == b"once"
        async with await psycopg.AsyncConnection.connect(url, prepare_threshold=None) as connection:
            await message.ack(connection=connection)
        assert (await orders.describe()).current_message_count == 0

        worker = penstock.Worker(client)
        await orders.send(b"work")

        @worker.handler("orders", transactional=True)
        async def work(message: penstock.Message, connection: psycopg.AsyncConnection[Any]) -> None:
            await connection.execute("CREATE TABLE done AS SELECT 1 AS number")

        await worker.run(until_idle=True)
        assert worker.stats()["orders"].done == 1


@pytest.mark.slow
def test_a_server_serves_from_behind_a_pooler(pooler: Pooler, dsn: str, tmp_path: Path) -> None:
    with (
        Served(tmp_path / "a", "--store", pooler.url(dsn), "--pooled") as server,
        penstock.connect(server.url) as client,
    ):
        client.create_queue("orders")
        with penstock.connect(dsn) as around:
            around.queue("orders").send("teapot")
        message = client.queue("orders").receive(wait_s=60)
        assert message is not None
        assert message.text == "teapot"
        message.ack()


async def test_what_a_killed_pooler_left_in_doubt_is_found_out(dsn: str) -> None:
    """The server finishes what it was doing; the client connects again, looks, and does nothing twice."""
    with Pooler(shared_server()) as pooler:
        async with opened(pooler.url(dsn)) as store:
            await store.create("orders", QueueSettings())
            confirmed: list[str] = []

            async def send(number: int) -> None:
                for nth in range(30):
                    while True:
                        try:
                            confirmed.extend(await store.send("orders", Drafts(bodies=[b"%d/%d" % (number, nth)])))
                            break
                        except ConnectionLost:
                            # No answer at all: only then is it unknown, and it is sent again under another number.
                            unknown.append(b"%d/%d" % (number, nth))
                            await asyncio.sleep(0.02)  # Real time: the pooler is being started.

            unknown: list[bytes] = []
            async with asyncio.TaskGroup() as tasks:
                for number in range(4):
                    tasks.create_task(send(number))
                for _ in range(3):
                    more = min(len(confirmed) + 10, 100)
                    await eventually(lambda more=more: len(confirmed) >= more)  # type: ignore[misc]
                    await asyncio.to_thread(pooler.kill)
                    await asyncio.to_thread(pooler.start)
            found: list[bytes] = []
            while (delivery := await store.lease("orders", want=100)) is not None:
                found += map(bytes, delivery.bodies)
                assert set(await store.ack("orders", delivery.receipts())) == {Outcome.DONE}
            wanted = {b"%d/%d" % (number, nth) for number in range(4) for nth in range(30)}
            assert set(found) == wanted
            assert len(confirmed) == len(wanted)
            # What was confirmed is there once; only what the store itself called unknown may be there again.
            assert {body for body in found if found.count(body) > 1} <= set(unknown)
