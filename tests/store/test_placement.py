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
from penstock.store.errors import QueueNotFound
from penstock.store.interface import QueueStore, RedriveOrder, Release
from penstock.store.placement import RoutedPlacement


@asynccontextmanager
async def _two(*patterns: str) -> AsyncIterator[tuple[RoutedPlacement, list[QueueStore]]]:
    async with (
        await EmbeddedStore.in_memory(memory_runtime()) as first,
        await EmbeddedStore.in_memory(memory_runtime()) as second,
    ):
        yield RoutedPlacement([first, second], Routes(patterns, [0, 1])), [first, second]


async def test_queues_of_all_stores_are_listed_in_one_order() -> None:
    async with _two("b*", "*") as (placement, (first, _)):
        names = [f"{letter}{number}" for letter in "abc" for number in range(7)]
        for name in reversed(names):
            await placement.create(name, QueueSettings())
        assert await first.queues() == names[7:14]
        for most in (1, 2, 5, 100):
            found: list[str] = []
            while page := await placement.queues(after=found[-1] if found else "", most=most):
                assert len(page) <= most
                found += page
            assert found == names
        assert await placement.queues(prefix="b", after="b1", most=2) == ["b2", "b3"]


async def test_a_queue_that_the_map_leads_elsewhere_for_is_named_and_not_there() -> None:
    async with _two("b*", "*") as (placement, (first, _)):
        for name in ("a1", "a2", "a2.dead", "b1", "c"):
            await first.create(name, QueueSettings(deliveries_max=0))
        assert await placement.misplaced() == {"database 1 (b*)": ["a1", "a2", "a2.dead", "c"]}
        # However many of them stand before one that is reached.
        assert await placement.queues(most=1) == ["b1"]
        with pytest.raises(QueueNotFound):
            await placement.of("a1").counts("a1")
        with pytest.raises(QueueNotFound):
            await placement.name((await first.describe("a1")).id)


async def test_a_name_that_no_pattern_fits_is_refused() -> None:
    async with _two("orders.*", "mail") as (placement, _):
        with pytest.raises(BadName, match=r"queue is 'lamps'; no pattern .* fits it \(orders\.\*, mail\)"):
            await placement.create("lamps", QueueSettings())
        with pytest.raises(BadName, match="no dot first"):
            await placement.create(".x", QueueSettings())
        with pytest.raises(QueueNotFound, match=r"orders\.\*, mail"):
            await placement.of("lamps").send("lamps", Drafts(bodies=[b"a"]))


async def test_dead_letters_are_kept_beside_their_queue() -> None:
    async with _two("orders.*", "*") as (placement, (first, _)):
        elsewhere = QueueSettings(dead_letters="graves")
        message = r"dead_letters is 'graves', which would be in database 2 \(\*\); .* 'orders.new' is, in database 1"
        with pytest.raises(BadSettings, match=message):
            await placement.create("orders.new", elsewhere)
        await placement.create("orders.new", QueueSettings(deliveries_max=1, dead_letters="orders.graves"))
        with pytest.raises(BadSettings, match=message):
            await placement.change("orders.new", elsewhere)
        await placement.create("orders.old", QueueSettings(deliveries_max=1))
        await placement.create("mail", QueueSettings())
        (sent,) = await placement.of("orders.old").send("orders.old", Drafts(bodies=[b"a"]))
        delivery = await placement.of("orders.old").lease("orders.old", want=1)
        assert delivery is not None
        await placement.of("orders.old").release("orders.old", delivery.receipts(), Release(is_rejected=True))
        await placement.tidy()
        assert "orders.old.dead" in await first.queues()

        with pytest.raises(
            ValueError, match=r"target_queue is 'mail', in database 2 \(\*\); 'orders.old.dead' is in database 1"
        ):
            await placement.redrive("orders.old.dead", RedriveOrder(into="mail", most=1))
        assert (await placement.redrive("orders.old.dead", RedriveOrder(most=1))).moved == {"orders.old": [sent]}
