"""A queue with a size: it is exact with many senders, costs the same at any backlog, and senders do not wait."""

import asyncio
from dataclasses import replace

import psycopg
import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.core.queue.queue import QueueFull
from penstock.store.interface import QueueStore
from penstock.store.postgres.database import PostgresSettings, Timing
from penstock.store.postgres.statements import function
from penstock.store.postgres.store import PostgresStore
from tests.postgres.blocks import Stage, opened
from tests.postgres.rooms import wrong_rooms
from tests.postgres.schemas import empty_schema
from tests.postgres.waiting import until_waited_for
from tests.simulation.clock import SimClock, SimDice
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real_time

_SEND = b"SELECT penstock.send_plain(%s::int, %s::bigint, %s::bigint, 2::smallint, %s, NULL, %s::bigint, NULL)"
_NONE = (0, 0, 0, 0, 0)


def patient_settings() -> PostgresSettings:
    """Senders wait for each other here for as long as a busy machine takes, and are not refused for that."""
    return replace(empty_schema(), timing=Timing(lock=f"{PATIENCE_S}s"))


async def accepted(store: QueueStore, batches: list[int]) -> int:
    count = 0
    for batch in batches:
        try:
            count += len(await store.send("orders", Drafts(bodies=[b"a"] * batch)))
        except QueueFull:
            continue
    return count


async def test_a_queue_takes_exactly_its_size_from_many_who_send_at_once() -> None:
    settings = patient_settings()
    stores = [
        await PostgresStore.open(settings, clock=SimClock(), dice=SimDice(seed), may_migrate=False, has_upkeep=False)
        for seed in range(3)
    ]
    try:
        await stores[0].create("orders", QueueSettings(size_max=100, reserve_percent=_NONE))
        for full in (100, 37):
            # Batches of one come last, so whatever is left is taken.
            sends = [accepted(store, [3, 2, 7, *[1] * 20]) for store in stores for _ in range(4)]
            assert sum(await asyncio.gather(*sends)) == full
            assert await wrong_rooms(settings) == []
            delivery = await stores[1].lease("orders", want=37)
            assert delivery is not None
            await stores[2].ack("orders", delivery.receipts())
    finally:
        for store in stores:
            await store.close()


async def test_a_send_does_not_wait_for_another_that_is_not_committed() -> None:
    async with opened(QueueSettings(size_max=1_000, reserve_percent=_NONE)) as stage:
        known = await stage.known()
        async with await psycopg.AsyncConnection.connect(stage.url) as other, asyncio.timeout(60):
            values = (known.number, known.version, stage.store.now_ms(), [b"a"], 1_000)
            await other.execute(_SEND, values)
            assert len(await stage.store.send("orders", Drafts(bodies=[b"b"]))) == 1
            delivery = await stage.lease(1)
            await stage.store.ack("orders", delivery.receipts())


async def test_near_the_limit_a_send_waits_for_those_that_may_be_undone() -> None:
    async with opened(QueueSettings(size_max=10, reserve_percent=_NONE)) as stage:
        known = await stage.known()
        async with await psycopg.AsyncConnection.connect(stage.url) as other, asyncio.TaskGroup() as tasks:
            values = (known.number, known.version, stage.store.now_ms(), [b"a"] * 10, 10)
            await other.execute(_SEND, values)
            sending = tasks.create_task(stage.store.send("orders", Drafts(bodies=[b"b"])))
            await until_waited_for(other)
            await other.rollback()
        assert len(sending.result()) == 1


async def blocks_of_a_send(stage: Stage, room: int) -> int:
    known = await stage.known()
    call = function("send_plain", "penstock")
    values = call.arguments([known.number, known.version, stage.store.now_ms(), 2, [b""], None, room, None])
    return await stage.blocks(call.text.decode(), values)


@pytest.mark.parametrize("has_reserve", [False, True])
async def test_a_send_to_a_queue_with_a_size_looks_at_as_many_blocks_at_any_backlog(has_reserve: bool) -> None:
    size = QueueSettings(size_max=100_000, reserve_percent=(0, 2, 5, 10, 20) if has_reserve else _NONE)
    async with opened(size) as stage:
        room = size.room(2)
        await stage.store.send("orders", Drafts(bodies=[b""] * 100))
        await blocks_of_a_send(stage, room)
        few = await blocks_of_a_send(stage, room)
        for _ in range(20):
            await stage.store.send("orders", Drafts(bodies=[b""] * 1_000))
        assert await blocks_of_a_send(stage, room) <= 2 * few


async def test_a_size_that_is_lowered_below_what_waits_refuses_until_enough_is_gone() -> None:
    settings = QueueSettings(size_max=20, reserve_percent=_NONE)
    async with opened(settings) as stage:
        await stage.store.send("orders", Drafts(bodies=[b"a"] * 15))
        await stage.store.change("orders", replace(settings, size_max=10))
        for left in (9, 6):
            with pytest.raises(QueueFull):
                await stage.store.send("orders", Drafts(bodies=[b"b"]))
            delivery = await stage.lease(3 if left == 9 else 4)
            await stage.store.ack("orders", delivery.receipts())
        assert len(await stage.store.send("orders", Drafts(bodies=[b"b"] * 2))) == 2
        with pytest.raises(QueueFull):
            await stage.store.send("orders", Drafts(bodies=[b"b"]))
