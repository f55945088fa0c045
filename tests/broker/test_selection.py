"""Which messages an operator means: all that fit, page by page, and no more than were asked for."""

import asyncio
from collections.abc import Coroutine

from penstock.broker.redrives import select
from penstock.contract.limits import PAGE_MAX, TURN_MESSAGES
from penstock.core.queue.message import Drafts
from penstock.store.interface import MessageFilter, RedriveOrder
from tests.broker.brokers import Broker, open_broker
from tests.waiting import let_others_run


async def found(broker: Broker, selection: MessageFilter, *, most: int = 10_000, queue: str = "orders") -> list[str]:
    ids: list[str] = []
    async for page in select(broker.store, queue, selection, most=most):
        assert page
        assert len(page) <= PAGE_MAX
        ids += page
    return ids


async def test_a_selection_of_everything_has_every_message_once() -> None:
    async with open_broker(has_queue=True) as broker:
        ids = await broker.send(*[b"%d" % each for each in range(2_500)])
        assert sorted(await found(broker, MessageFilter())) == sorted(ids)


async def test_a_selection_has_no_more_than_were_asked_for() -> None:
    async with open_broker(has_queue=True) as broker:
        ids = await broker.send(*[b"a"] * 2_500)
        assert await found(broker, MessageFilter(), most=1_200) == ids[:1_200]


async def test_a_selection_keeps_to_what_fits_all_that_is_said() -> None:
    async with open_broker(has_queue=True) as broker:
        drafts = Drafts(
            bodies=[b"red apple", b"red pear", b"green apple", b"red apple"],
            tiers=bytes([0, 0, 0, 4]),
            groups=[b"g", b"g", b"g", b"g"],
        )
        ids = list(await broker.queues.send("orders", drafts))
        assert await found(broker, MessageFilter(text=b"red", tier=0)) == ids[:2]
        assert await found(broker, MessageFilter(text=b"apple", tier=0, group=b"g")) == [ids[0], ids[2]]
        assert await found(broker, MessageFilter(group=b"h")) == []
        assert await found(broker, MessageFilter(place="leased")) == []


async def test_a_selection_by_error_and_origin_keeps_to_dead_letters_that_fit() -> None:
    async with open_broker(has_queue=True) as broker:
        ids = await broker.bury(b"a", b"b")
        origin_id = (await broker.store.describe("orders")).id
        await broker.send(b"c", queue="orders.dead")
        for selection in (MessageFilter(error="oo"), MessageFilter(origin="orders"), MessageFilter(origin=origin_id)):
            assert await found(broker, selection, queue="orders.dead") == ids
        assert await found(broker, MessageFilter(error="bang"), queue="orders.dead") == []
        assert await found(broker, MessageFilter(origin="elsewhere"), queue="orders.dead") == []


async def turns_during(work: Coroutine[None, None, object]) -> int:
    """Return how often another task had a turn while something was done."""
    turns = 0
    is_done = False

    async def others() -> None:
        nonlocal turns
        while not is_done:
            turns += 1
            await let_others_run()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(others())
        await work
        is_done = True
    return turns


async def test_a_search_that_finds_little_lets_others_have_their_turns() -> None:
    async with open_broker(has_queue=True) as broker:
        for count in (1_000, 9_000):
            await broker.send(*[b"x"] * count)
        turns = await turns_during(found(broker, MessageFilter(text=b"y")))
        assert turns >= 10_000 // TURN_MESSAGES - 1


async def test_a_redrive_past_many_that_cannot_go_lets_others_have_their_turns() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"x"] * 1_000)
        await broker.queues.delete("orders", with_dead_letters=False)
        turns = await turns_during(broker.store.redrive("orders.dead", RedriveOrder(most=100)))
        assert turns >= 1_000 // TURN_MESSAGES - 1
