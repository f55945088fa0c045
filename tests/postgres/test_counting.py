"""Counts of what waits: each time while that is quick, and now and then when very much waits."""

import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.message import Drafts
from penstock.store.postgres import asking
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema
from tests.simulation.clock import SimClock, SimDice

pytestmark = pytest.mark.real_time


async def test_very_many_waiting_messages_are_not_counted_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if so few took long to count.
    monkeypatch.setattr(asking, "COUNTED_EACH_TIME", 10)
    monkeypatch.setattr(asking, "COUNTED_PER_MS", 1)
    clock = SimClock()
    store = await PostgresStore.open(empty_schema(), clock=clock, dice=SimDice(), may_migrate=False, has_upkeep=False)
    try:
        await store.create("orders", QueueSettings())

        async def send(count: int) -> int:
            await store.send("orders", Drafts(bodies=[b""] * count))
            return sum((await store.counts("orders")).ready)

        assert [await send(5), await send(5), await send(5), await send(5)] == [5, 10, 15, 15]
        assert await store.lease("orders", want=2) is not None
        found = await store.counts("orders")
        assert (sum(found.ready), found.leased) == (15, 2), "what is leased is counted each time"
        clock.advance_ms(15)
        assert sum((await store.counts("orders")).ready) == 18
        assert await store.lease("orders", want=20) is not None
        assert await store.lease("orders", want=1) is None
        assert sum((await store.counts("orders")).ready) == 0, "whoever finds nothing knows better"
    finally:
        await store.close()
