"""Counts of what is in queues: each time while that is little, and behind those who ask when it is much."""

import asyncio
from dataclasses import replace

import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.postgres import queries
from penstock.store.postgres.database import Timing
from penstock.store.postgres.store import PostgresStore
from tests.postgres.blocks import opened
from tests.postgres.schemas import empty_schema
from tests.simulation.clock import SimClock, SimDice
from tests.waiting import eventually

pytestmark = pytest.mark.real_time


async def test_what_is_much_is_not_counted_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if so few took long to count.
    monkeypatch.setattr(queries, "COUNTED_MOST", 8)
    monkeypatch.setattr(queries, "COUNTED_EACH_TIME", 10)
    monkeypatch.setattr(queries, "COUNTED_PER_MS", 1)
    async with opened(QueueSettings()) as stage:

        async def send(count: int) -> int:
            await stage.store.send("orders", Drafts(bodies=[b""] * count))
            return sum((await stage.store.counts("orders")).ready)

        assert [await send(5), await send(5), await send(5), await send(5)] == [5, 10, 15, 15]
        assert await stage.store.lease("orders", want=2) is not None
        found = await stage.store.counts("orders")
        assert (sum(found.ready), found.leased) == (15, 2), "what is little is counted each time"
        stage.clock.advance_ms(15)
        assert sum((await stage.store.counts("orders")).ready) == 18
        assert await stage.store.lease("orders", want=15) is not None
        assert sum((await stage.store.counts("orders")).ready) == 3


async def test_what_is_much_is_counted_behind_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "COUNTED_MOST", 8)
    settings = replace(empty_schema(), connections_max=2, timing=Timing(recount_s=0.01))
    async with (
        await PostgresStore.open(settings, clock=SimClock(), dice=SimDice(0), may_migrate=False) as store,
        asyncio.timeout(60),
    ):
        await store.create("orders", QueueSettings())
        await store.send("orders", Drafts(bodies=[b""] * 10))
        assert sum((await store.counts("orders")).ready) == 10
        await store.send("orders", Drafts(bodies=[b""] * 10))

        async def are_counted() -> bool:
            return sum((await store.counts("orders")).ready) == 20

        await eventually(are_counted)


async def test_queues_are_described_together_whatever_is_in_them() -> None:
    async with opened(QueueSettings(deliveries_max=1)) as stage:
        store = stage.store
        await store.create("parcels", QueueSettings(aging_ms=(0, 0, 1_000, 0, 0)))
        await store.send("orders", Drafts(bodies=[b""] * 3))
        await store.send("parcels", Drafts(bodies=[b""] * 4, groups=[b"a", b"a", b"", b""]))
        await store.lease("orders", want=1, lease_ms=1_000)
        await store.lease("parcels", want=1, lease_ms=60_000)
        stage.clock.advance_ms(2_000)
        together = await store.summaries(["parcels", "nothing", "orders", "no name"])
        assert together == [
            (await store.describe("parcels"), await store.counts("parcels")), None,
            (await store.describe("orders"), await store.counts("orders")), None,
        ]  # fmt: skip
        assert [(sum(each[1].ready), each[1].leased, each[1].stuck) for each in together if each] == [
            (3, 1, 0),
            (2, 0, 1),
        ]
        assert [each[1].ready[1] for each in together if each] == [3, 0], "they have aged"
