"""How a worker holds what it works on, and what it does when it has lost it."""

import asyncio
import logging
import threading

import pytest

from penstock.client.message import UNKNOWN, LeasedBatch, Message
from penstock.client.worker import MemoryIdempotencyStore, Worker
from penstock.client.worker.consumer import HeldLeases
from penstock.wire.frames import Ids, LeasedFrame
from tests.waiting import eventually, let_others_run, until_cancelled
from tests.worker.stage import staged

pytestmark = pytest.mark.real_time


async def test_a_message_stays_with_its_worker_for_as_long_as_the_work_takes() -> None:
    async with staged(visibility_timeout=3) as stage:
        await stage.queue.send("order")

        @stage.worker.handler("orders")
        async def work(message: Message) -> None:
            await asyncio.sleep(5)  # Real time: longer than the lease.

        async with stage.running():
            await eventually(lambda: stage.stats().running == 1)
            assert await stage.queue.receive(wait_s=4) is None
            await eventually(lambda: stage.stats().done == 1)
        assert stage.stats().received == 1
        assert await stage.count() == 0


async def test_threads_are_held_for_like_any_other_work() -> None:
    async with staged(visibility_timeout=3) as stage:
        await stage.queue.send("order")
        go_on = threading.Event()

        @stage.worker.handler("orders")
        def work(message: Message) -> None:
            go_on.wait(60)

        async with stage.running():
            await eventually(lambda: stage.stats().running == 1)
            assert await stage.queue.receive(wait_s=4) is None
            go_on.set()
            await eventually(lambda: stage.stats().done == 1)
        assert stage.stats().lost == 0


async def test_work_whose_lease_was_lost_is_cancelled_and_not_acked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock.worker")
    async with staged(visibility_timeout=3) as stage:
        await stage.queue.send("order")
        ends: list[str] = []

        @stage.worker.handler("orders")
        async def work(message: Message) -> None:
            if message.delivery_count > 1:
                return
            try:
                # The message is given back from elsewhere: from then on it is not this worker's.
                await stage.queue.release(message.receipt, delay_s=0)
                await until_cancelled()
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise

        async with stage.running():
            await eventually(lambda: stage.stats().done == 1)
            await eventually(lambda: ends == ["cancelled"])
        assert (stage.stats().lost, stage.stats().received) == (1, 2)
        assert [record.__dict__["event"] for record in caplog.records] == ["worker_lease_lost"]


async def test_work_whose_lease_was_lost_may_go_on_to_its_end() -> None:
    async with staged(visibility_timeout=3) as stage:
        await stage.queue.send("order")
        ends: list[int] = []

        @stage.worker.handler(
            "orders", cancel_on_lost_lease=False, idempotency=MemoryIdempotencyStore(clock=stage.clock)
        )
        async def work(message: Message) -> None:
            await stage.queue.release(message.receipt, delay_s=0)
            await asyncio.sleep(5)  # Real time: longer than the lease.
            ends.append(message.delivery_count)

        async with stage.running():
            await eventually(lambda: stage.stats().duplicate == 1)
        # The second delivery found that the first was at it, and later that it was done.
        assert ends == [1]
        assert (stage.stats().done, stage.stats().lost) == (0, 1)
        assert await stage.count() == 0


async def test_slow_work_leaves_what_it_cannot_do_now_to_others() -> None:
    async with staged() as stage:
        await stage.queue.send_many([b"x"] * 50)
        go_on = asyncio.Event()

        @stage.worker.handler("orders", concurrency=5)
        async def work(message: Message) -> None:
            await go_on.wait()

        async with stage.running():
            await eventually(lambda: stage.stats().running == 5)
            others = await stage.queue.receive(limit=100)
            assert len(others) == 45
            await others.ack()
            go_on.set()
            await eventually(lambda: stage.stats().done == 5)


async def test_two_workers_share_a_queue_and_do_everything_once() -> None:
    async with staged() as stage:
        other = Worker(stage.client)
        worked: list[str] = []
        shares = {"one": 0, "two": 0}
        for name, worker in (("one", stage.worker), ("two", other)):

            @worker.handler("orders", concurrency=5)
            async def work(message: Message, name: str = name) -> None:
                shares[name] += 1
                worked.append(message.text)
                await let_others_run(20)

        await stage.queue.send_many([str(number) for number in range(400)])
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stage.worker.run(until_idle=True))
            tasks.create_task(other.run(until_idle=True))
        assert sorted(worked, key=int) == [str(number) for number in range(400)]
        # How much each of them gets depends on how the machine is at the moment.
        assert min(shares.values()) > 0


def facts_of(count: int) -> LeasedBatch:
    frame = LeasedFrame(
        lease=1,
        token=1,
        until_ms=0,
        ids=Ids(1, list(range(count))),
        bodies=[b""] * count,
        tiers=bytes(count),
        deliveries=[1] * count,
        sent_at_ms=[0] * count,
    )
    return LeasedBatch(frame, "orders", UNKNOWN)


def test_what_is_being_settled_is_not_lost_when_it_cannot_be_extended() -> None:
    held, leased = HeldLeases(), facts_of(3)
    held.take(leased, 30.0)
    first, second = (Message(leased, row, None) for row in (0, 1))  # type: ignore[arg-type] # Nothing is settled here.
    held.settle(first)
    (lease,) = held.due(20.0, 30.0)
    assert held.extended(lease, 0b111, 0b100, 50.0) == 0b010
    held.drop(second)
    assert held.extended(lease, 0b111, 0b100, 50.0) == 0


def test_a_lease_is_due_when_a_third_of_it_is_left() -> None:
    held, leased = HeldLeases(), facts_of(2)
    held.take(leased, 30.0)
    assert (held.due(19.9, 30.0), held.next_due_s(30.0)) == ([], 20.0)
    assert len(held.due(20.0, 30.0)) == 1
    for row in (0, 1):
        held.drop(Message(leased, row, None))  # type: ignore[arg-type]
    assert (list(held), held.next_due_s(30.0)) == ([], None)


def test_a_message_is_held_until_its_lease_ends_by_our_clock() -> None:
    held, leased = HeldLeases(), facts_of(1)
    held.take(leased, 30.0)
    message = Message(leased, 0, None)  # type: ignore[arg-type]
    assert [held.has(message, now_s) for now_s in (29.9, 30.0)] == [True, False]
