"""Several stores used as one, whatever they are: here two in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.contract.names import BadName
from penstock.contract.queue_settings import BadSettings, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.core.routes import Routes
from penstock.runtime.memory import memory_runtime
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import QueueNotFound, QueueStore, RedriveOrder, Release
from penstock.store.routed import RoutedStore


@asynccontextmanager
async def _two(*patterns: str) -> AsyncIterator[tuple[RoutedStore, list[QueueStore]]]:
    async with (
        await EmbeddedStore.in_memory(memory_runtime()) as first,
        await EmbeddedStore.in_memory(memory_runtime()) as second,
    ):
        yield RoutedStore([first, second], Routes(patterns, [0, 1])), [first, second]


async def test_queues_of_all_stores_are_listed_in_one_order() -> None:
    async with _two("b*", "*") as (routed, (first, _)):
        names = [f"{letter}{number}" for letter in "abc" for number in range(7)]
        for name in reversed(names):
            await routed.create(name, QueueSettings())
        assert await first.queues() == names[7:14]
        for most in (1, 2, 5, 100):
            found: list[str] = []
            while page := await routed.queues(after=found[-1] if found else "", most=most):
                assert len(page) <= most
                found += page
            assert found == names
        assert await routed.queues(prefix="b", after="b1", most=2) == ["b2", "b3"]


async def test_a_queue_that_the_map_leads_elsewhere_for_is_named_and_not_there() -> None:
    async with _two("b*", "*") as (routed, (first, _)):
        for name in ("a1", "a2", "a2.dead", "b1", "c"):
            await first.create(name, QueueSettings(deliveries_max=0))
        assert await routed.misplaced() == {"database 1 (b*)": ["a1", "a2", "a2.dead", "c"]}
        # However many of them stand before one that is reached.
        assert await routed.queues(most=1) == ["b1"]
        with pytest.raises(QueueNotFound):
            await routed.counts("a1")
        with pytest.raises(QueueNotFound):
            await routed.name((await first.describe("a1")).id)


async def test_a_name_that_no_pattern_fits_is_refused() -> None:
    async with _two("orders.*", "mail") as (routed, _):
        with pytest.raises(BadName, match=r"queue is 'lamps'; no pattern .* fits it \(orders\.\*, mail\)"):
            await routed.create("lamps", QueueSettings())
        with pytest.raises(BadName, match="no dot first"):
            await routed.create(".x", QueueSettings())
        with pytest.raises(QueueNotFound, match=r"orders\.\*, mail"):
            await routed.send("lamps", Drafts(bodies=[b"a"]))


async def test_dead_letters_are_kept_beside_their_queue() -> None:
    async with _two("orders.*", "*") as (routed, (first, _)):
        elsewhere = QueueSettings(dead_letters="graves")
        message = r"dead_letters is 'graves', which would be in database 2 \(\*\); .* 'orders.new' is, in database 1"
        with pytest.raises(BadSettings, match=message):
            await routed.create("orders.new", elsewhere)
        await routed.create("orders.new", QueueSettings(deliveries_max=1, dead_letters="orders.graves"))
        with pytest.raises(BadSettings, match=message):
            await routed.change("orders.new", elsewhere)
        await routed.create("orders.old", QueueSettings(deliveries_max=1))
        await routed.create("mail", QueueSettings())
        (sent,) = await routed.send("orders.old", Drafts(bodies=[b"a"]))
        delivery = await routed.lease("orders.old", want=1)
        assert delivery is not None
        await routed.release("orders.old", delivery.receipts(), Release(is_rejected=True))
        await routed.tidy()
        assert "orders.old.dead" in await first.queues()

        with pytest.raises(
            ValueError, match=r"target_queue is 'mail', in database 2 \(\*\); 'orders.old.dead' is in database 1"
        ):
            await routed.redrive("orders.old.dead", RedriveOrder(into="mail", most=1))
        assert (await routed.redrive("orders.old.dead", RedriveOrder(most=1))).moved == {"orders.old": [sent]}
