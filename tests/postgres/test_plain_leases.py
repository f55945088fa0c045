"""Leases of one tier of small messages, which take the shortest way: that they find all that the longer way would."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.interface import Outcome, Release
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema
from tests.postgres.servers import shared_server
from tests.simulation.clock import SimClock, SimDice

pytestmark = pytest.mark.real_time


@asynccontextmanager
async def two_stores() -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Two stores on one queue, of which the first has learned by a lease that messages are plain, small and normal."""
    settings, clock = empty_schema(), SimClock()
    stores = [PostgresStore(settings, clock=clock, dice=SimDice(seed)) for seed in range(2)]
    async with stores[0] as here, stores[1] as elsewhere:
        await here.create("orders", QueueSettings())
        await here.send("orders", Drafts(bodies=[b"first"]))
        for want in (1, 1):
            if delivery := await here.lease("orders", want=want):
                await here.ack("orders", delivery.receipts())
        yield here, elsewhere


async def test_a_plain_lease_has_the_attributes_of_each_message_where_they_belong() -> None:
    async with two_stores() as (here, elsewhere):
        await elsewhere.send("orders", Drafts(bodies=[b"a", b"b", b"c"], attributes=[b"", b"xyz", b""]))
        delivery = await here.lease("orders", want=3)
        assert delivery is not None
        assert delivery.attributes is not None
        assert [bytes(each) for each in delivery.bodies] == [b"a", b"b", b"c"]
        assert [bytes(each) for each in delivery.attributes] == [b"", b"xyz", b""]


async def test_a_plain_lease_that_finds_too_little_goes_on_with_other_tiers() -> None:
    async with two_stores() as (here, elsewhere):
        await elsewhere.send("orders", Drafts(bodies=[b"a", b"b"]))
        tiers = bytes((Tier.NORMAL + 1, 0))
        await elsewhere.send("orders", Drafts(bodies=[b"low", b"high"], tiers=tiers, attributes=[b"", b"x"]))
        delivery = await here.lease("orders", want=9)
        assert delivery is not None
        found = {bytes(body): tier for body, tier in zip(delivery.bodies, delivery.tiers, strict=True)}
        assert found == {b"a": Tier.NORMAL, b"b": Tier.NORMAL, b"low": Tier.NORMAL + 1, b"high": 0}
        attributes = dict(zip(map(bytes, delivery.bodies), delivery.attributes or (), strict=True))
        assert bytes(attributes[b"high"]) == b"x"
        # Each receipt is that of its own message.
        high = [bytes(body) for body in delivery.bodies].index(b"high")
        assert await here.release("orders", [delivery.receipts()[high]], Release(delay_ms=0)) == [Outcome.DONE]
        again = await here.lease("orders", want=9)
        assert again is not None
        assert [bytes(body) for body in again.bodies] == [b"high"]


async def test_a_plain_lease_leaves_out_nothing_that_has_a_group() -> None:
    async with two_stores() as (here, elsewhere):
        await elsewhere.send("orders", Drafts(bodies=[b"a", b"b"], groups=[b"", b"customer"]))
        delivery = await here.lease("orders", want=2)
        assert delivery is not None
        assert {bytes(body) for body in delivery.bodies} == {b"a", b"b"}


async def test_a_plain_lease_uses_what_another_store_has_just_set() -> None:
    async with two_stores() as (here, elsewhere):
        await elsewhere.send("orders", Drafts(bodies=[b"a"]))
        await elsewhere.change("orders", QueueSettings(lease_ms=7_000))
        delivery = await here.lease("orders", want=1)
        assert delivery is not None
        assert delivery.until_ms == here.now_ms() + 7_000


async def test_a_receipt_finds_its_lease_without_looking_at_other_leases() -> None:
    # A database in which nothing was counted yet: all leases of a queue look like one to the planner.
    settings = PostgresSettings(url=shared_server().new_database(), connections_max=1)
    async with await PostgresStore.open(settings, clock=SimClock(), dice=SimDice(), has_upkeep=False) as store:
        await store.create("orders", QueueSettings())
        await store.send("orders", Drafts(bodies=[b"a"] * 60))
        leases = [await store.lease("orders", want=1) for _ in range(60)]
        receipts = [lease.receipts() for lease in leases if lease is not None]
        assert len(receipts) == 60
        before = await _leases_read_by_queue(store)
        for mine in receipts[:10]:
            assert await store.extend("orders", mine, lease_ms=60_000) == [Outcome.DONE]
            assert await store.ack("orders", mine) == [Outcome.DONE]
        for mine in receipts[10:20]:
            assert await store.ack("orders", list(mine)) == [Outcome.DONE]
        assert await _leases_read_by_queue(store) - before < 60


async def _leases_read_by_queue(store: PostgresStore) -> int:
    await store._database.read(b"SELECT pg_stat_force_next_flush()")
    question = b"SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'lease_end'"
    ((count,),) = await store._database.read(question)
    return int(count)
