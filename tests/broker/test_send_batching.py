"""Small sends of many clients, gathered: each whole and in order, and no sender suffers for a neighbour."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.contract.limits import GATHERED_MESSAGES_MAX
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import BodyTooLarge, Drafts, Sender
from penstock.core.queue.queue import QueueFull
from penstock.store.errors import QueueNotFound
from tests.broker.brokers import Broker, open_broker
from tests.waiting import let_others_run


async def together(broker: Broker, *sends: Drafts, queue: str = "orders") -> list[Sequence[str] | BaseException]:
    """Send all in one turn, and return what each came to."""

    async def send(drafts: Drafts) -> Sequence[str] | BaseException:
        try:
            return list(await broker.queues.send(queue, drafts))
        except Exception as error:
            return error

    async with asyncio.TaskGroup() as tasks:
        sending = [tasks.create_task(send(drafts)) for drafts in sends]
    return [each.result() for each in sending]


def count_sends(broker: Broker) -> list[int]:
    """Return a list that grows by the size of each send of the store."""
    sizes: list[int] = []
    send = broker.store.send

    async def counted(queue: str, drafts: Drafts, *, sender: Sender | None = None) -> Sequence[str]:
        sizes.append(len(drafts))
        return await send(queue, drafts, sender=sender)

    broker.store.send = counted  # type: ignore[method-assign] # To count is not to change what it does.
    return sizes


async def test_sends_of_one_turn_become_one_and_each_has_its_own_ids() -> None:
    async with open_broker(has_queue=True) as broker:
        sizes = count_sends(broker)
        found = await together(broker, *[Drafts(bodies=[b"%d a" % each, b"%d b" % each]) for each in range(100)])
        assert sizes == [200]
        delivery = await broker.take(want=1_000)
        bodies = dict(zip(delivery.ids, map(bytes, delivery.bodies), strict=True))
        for each, ids in enumerate(found):
            assert isinstance(ids, list)
            assert [bodies[message_id] for message_id in ids] == [b"%d a" % each, b"%d b" % each]


async def test_columns_that_only_some_have_stay_with_theirs() -> None:
    async with open_broker(has_queue=True) as broker:
        sizes = count_sends(broker)
        await together(
            broker,
            Drafts(bodies=[b"plain"]),
            Drafts(bodies=[b"urgent"], tiers=b"\0"),
            Drafts(bodies=[b"grouped"], groups=[b"g"], attributes=[b'{"a":1}']),
            Drafts(bodies=[b"later"], visible_at_ms=[broker.now_ms() + 60_000]),
        )
        assert sizes == [4]
        delivery = await broker.take(want=10)
        assert delivery.groups is not None
        assert delivery.attributes is not None
        columns = zip(delivery.bodies, delivery.tiers, delivery.groups, delivery.attributes, strict=True)
        found = {bytes(body): (tier, bytes(group), bytes(given)) for body, tier, group, given in columns}
        assert found == {
            b"plain": (2, b"", b""),
            b"urgent": (0, b"", b""),
            b"grouped": (2, b"g", b'{"a":1}'),
        }


async def test_no_sender_suffers_for_a_neighbour_that_is_refused() -> None:
    async with open_broker() as broker:
        await broker.store.create("orders", QueueSettings(body_bytes_max=5))
        good, bad, also_good = await together(
            broker, Drafts(bodies=[b"a"]), Drafts(bodies=[b"much too large"]), Drafts(bodies=[b"b"])
        )
        assert isinstance(bad, BodyTooLarge)
        assert bad.row == 0
        assert isinstance(good, list)
        assert isinstance(also_good, list)
        assert (await broker.store.counts("orders")).live == 2


async def test_a_queue_takes_as_many_of_those_who_come_together_as_it_has_room_for() -> None:
    async with open_broker() as broker:
        await broker.store.create("orders", QueueSettings(size_max=5, reserve_percent=(0, 0, 0, 0, 0)))
        found = await together(broker, *[Drafts(bodies=[b"a"])] * 8)
        assert [isinstance(each, QueueFull) for each in found] == [False] * 5 + [True] * 3


async def test_everyone_who_sends_to_nowhere_is_told() -> None:
    async with open_broker() as broker:
        found = await together(broker, *[Drafts(bodies=[b"a"])] * 3, queue="nowhere")
        assert all(isinstance(each, QueueNotFound) for each in found)


async def test_more_than_may_gather_goes_in_several_sends() -> None:
    async with open_broker(has_queue=True) as broker:
        sizes = count_sends(broker)
        found = await together(broker, *[Drafts(bodies=[b"a"] * 60)] * 40)
        assert all(isinstance(each, list) for each in found)
        assert sum(sizes) == 2_400
        assert max(sizes) <= GATHERED_MESSAGES_MAX
        assert len(sizes) > 1


async def test_a_send_with_a_sender_is_not_gathered() -> None:
    async with open_broker(has_queue=True) as broker:
        sizes = count_sends(broker)
        async with asyncio.TaskGroup() as tasks:
            for sequence in range(3):
                tasks.create_task(broker.queues.send("orders", Drafts(bodies=[b"a"]), sender=Sender(1, 0, sequence)))
        assert sizes == [1, 1, 1]


async def test_sends_one_after_the_other_keep_their_order() -> None:
    async with open_broker(has_queue=True) as broker:
        for each in range(20):
            await broker.send(b"%d" % each)
        delivery = await broker.take(want=100)
        assert [bytes(body) for body in delivery.bodies] == [b"%d" % each for each in range(20)]


async def test_a_sender_that_is_cancelled_leaves_its_neighbours_alone() -> None:
    async with open_broker(has_queue=True) as broker:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(broker.send(b"a"))
            second = tasks.create_task(broker.send(b"b"))
            await let_others_run()
            first.cancel()
        assert first.cancelled()
        assert len(second.result()) == 1


async def test_those_who_wait_when_the_broker_fails_are_not_left_waiting() -> None:
    waiting: list[asyncio.Task[list[str]]] = []

    async def fail() -> None:
        async with open_broker(has_queue=True) as broker:
            waiting.extend(asyncio.create_task(broker.send(b"a")) for _ in range(3))  # noqa: TID251 - awaited below.
            await let_others_run(3)
            raise KeyError("a mistake somewhere in the broker")

    with pytest.raises(ExceptionGroup):
        await fail()
    async with asyncio.timeout(60):
        await asyncio.wait(waiting)
    assert all(task.done() for task in waiting)
