"""A group that keeps its order has a front: no lease walks over dead rows of its messages, and none is passed over."""

import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.interface import Outcome, Release
from tests.postgres.blocks import DEAD, Stage, opened, pinned

pytestmark = pytest.mark.real_time

FIFO = QueueSettings(is_fifo=True, deliveries_max=0)
REFRESH = "SELECT penstock.refresh_lines(1, ARRAY['0'::bytea])"


async def bodies(stage: Stage, want: int) -> list[bytes]:
    delivery = await stage.lease(want)
    assert await stage.store.ack("orders", delivery.receipts()) == [Outcome.DONE] * len(delivery)
    return [bytes(body) for body in delivery.bodies]


async def send(stage: Stage, *names: bytes) -> None:
    await stage.store.send("orders", Drafts(bodies=list(names), groups=[b"0"] * len(names)))


async def test_a_group_in_order_is_not_looked_through_from_its_first_message() -> None:
    async with opened(FIFO) as stage, pinned(stage):
        # One message more than is leased, so that the group lives on.
        await send(stage, b"")
        for _ in range(DEAD // 500):
            await stage.send(500, groups=1)
            delivery = await stage.lease(500)
            await stage.store.ack("orders", delivery.receipts())
        bound = [await stage.blocks(REFRESH) for _ in range(2)]
        await stage.watcher.execute("UPDATE penstock.line SET front = 0")
        unbound = await stage.blocks(REFRESH)
        assert unbound > 100, "then there was nothing to walk over"
        assert bound[1] < 50


async def test_a_group_that_begins_again_is_not_looked_through_from_its_first_message() -> None:
    async with opened(FIFO) as stage, pinned(stage):
        for _ in range(DEAD // 500):
            await stage.send(500, groups=1)
            delivery = await stage.lease(500)
            await stage.store.ack("orders", delivery.receipts())
        await send(stage, b"a", b"b")
        bound = [await stage.blocks(REFRESH) for _ in range(2)]
        assert bound[1] < 50
        assert await bodies(stage, 10) == [b"a", b"b"]


async def test_what_comes_back_to_a_group_is_not_before_its_front() -> None:
    async with opened(FIFO) as stage:
        await send(stage, b"a", b"b", b"c")
        assert await bodies(stage, 1) == [b"a"]
        held = await stage.lease(1)
        # Higher than it could be while a message of the group is leased.
        await stage.watcher.execute("UPDATE penstock.line SET front = 1000000")
        assert await stage.store.release("orders", held.receipts(), Release(delay_ms=0)) == [Outcome.DONE]
        assert await bodies(stage, 10) == [b"b", b"c"]


async def test_a_group_of_which_some_are_acked_and_some_come_back_keeps_its_order() -> None:
    async with opened(FIFO) as stage:
        await send(stage, b"a", b"b", b"c", b"d")
        held = await stage.lease(3)
        receipts = list(held.receipts())
        assert await stage.store.ack("orders", receipts[1:2]) == [Outcome.DONE]
        assert await stage.store.release("orders", receipts[2:], Release(delay_ms=0)) == [Outcome.DONE]
        await send(stage, b"e")
        assert await stage.store.lease("orders", want=10) is None, "the first is held"
        stage.clock.advance_ms(61_000)
        assert await bodies(stage, 10) == [b"a", b"c", b"d", b"e"]
