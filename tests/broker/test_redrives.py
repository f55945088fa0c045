"""Redrives in virtual time: at a rate, of some or all, stopped between two steps, and remembered."""

import asyncio

import pytest

from penstock.broker.redrives import RedriveRequest, State, TaskNotFound, TooManyRedrives
from penstock.contract.limits import REDRIVES_MAX
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.errors import QueueNotFound
from penstock.store.interface import MessageFilter, Release
from tests.broker.brokers import Broker, open_broker
from tests.waiting import elapse, let_others_run

DEAD = "orders.dead"


async def run(broker: Broker, order: RedriveRequest) -> State:
    """Begin a redrive and see it to its end."""
    task = await broker.queues.redrives.begin(DEAD, order)
    assert task.running is not None
    await asyncio.wait([task.running])
    return task.state


async def live(broker: Broker, queue: str) -> int:
    return (await broker.store.counts(queue)).live


async def test_a_redrive_of_everything_brings_all_dead_letters_back() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"%d" % each for each in range(250)])
        assert await run(broker, RedriveRequest()) is State.DONE
        (task,) = broker.queues.redrives.of(DEAD)
        assert (task.moved, task.remaining, task.without_origin) == ({"orders": 250}, 0, 0)
        assert (await live(broker, "orders"), await live(broker, DEAD)) == (250, 0)
        assert len(task.sample) == 20


async def test_a_redrive_keeps_to_its_rate() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"a"] * 60)
        began_ms = broker.now_ms()
        assert await run(broker, RedriveRequest(rate_per_s=20)) is State.DONE
        # The last step need not wait.
        assert 2_800 <= broker.now_ms() - began_ms <= 3_700
        assert await live(broker, "orders") == 60


async def test_a_redrive_moves_no_more_than_its_limit() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"a"] * 30)
        assert await run(broker, RedriveRequest(most=12)) is State.DONE
        assert (await live(broker, "orders"), await live(broker, DEAD)) == (12, 18)


async def test_a_redrive_by_ids_moves_only_those() -> None:
    async with open_broker(has_queue=True) as broker:
        ids = await broker.bury(*[b"a"] * 5)
        assert await run(broker, RedriveRequest(ids=(ids[1], ids[3], "1-ffff", "no id"))) is State.DONE
        (task,) = broker.queues.redrives.of(DEAD)
        assert (task.moved_total, task.remaining) == (2, 3)
        assert sorted(task.sample) == sorted([ids[1], ids[3]])


async def test_a_redrive_by_filter_moves_only_what_fits() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"red" if each % 2 else b"blue" for each in range(50)])
        assert (
            await run(broker, RedriveRequest(filter=MessageFilter(text=b"red", error="boom", origin="orders")))
            is State.DONE
        )
        assert (await live(broker, "orders"), await live(broker, DEAD)) == (25, 25)
        assert await run(broker, RedriveRequest(filter=MessageFilter(error="bang"))) is State.DONE
        assert await live(broker, DEAD) == 25


async def test_a_redrive_into_another_queue_moves_everything_there() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.store.create("repairs", QueueSettings())
        await broker.bury(b"a", b"b")
        assert await run(broker, RedriveRequest(into="repairs")) is State.DONE
        assert (await live(broker, "repairs"), await live(broker, "orders")) == (2, 0)


async def test_dead_letters_of_a_deleted_queue_have_no_origin_and_stay() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(b"a", b"b", b"c")
        await broker.queues.delete("orders", with_dead_letters=False)
        assert await run(broker, RedriveRequest()) is State.DONE
        (task,) = broker.queues.redrives.of(DEAD)
        assert (task.moved_total, task.without_origin, task.remaining) == (0, 3, 3)


async def test_a_redrive_into_a_full_queue_waits_for_room() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"a"] * 5)
        await broker.store.change("orders", QueueSettings(size_max=3, deliveries_max=1))
        redrives = broker.queues.redrives
        task = await redrives.begin(DEAD, RedriveRequest())
        await elapse(30)
        assert (task.state, task.moved_total, task.remaining) == (State.RUNNING, 3, 2)
        assert task.reason is not None
        assert "no room in 'orders'" in task.reason
        held = await broker.store.lease("orders", want=3)
        assert held is not None
        await broker.store.ack("orders", held.receipts())
        assert task.running is not None
        await asyncio.wait([task.running])
        assert [task.state, task.moved_total, task.remaining, task.reason] == [State.DONE, 5, 0, None]


async def test_a_redrive_that_waits_for_room_in_vain_is_stopped_and_says_why() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"red" if each % 2 else b"blue" for each in range(10)])
        await broker.store.change("orders", QueueSettings(size_max=3, deliveries_max=1))
        assert await run(broker, RedriveRequest(filter=MessageFilter(text=b"red"))) is State.STOPPED
        (task,) = broker.queues.redrives.of(DEAD)
        assert (task.moved_total, task.remaining) == (3, 7)
        assert task.reason is not None
        assert "no room in 'orders'" in task.reason


async def test_a_stopped_redrive_counts_what_has_gone_and_can_be_begun_again() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"a"] * 40)
        redrives = broker.queues.redrives
        task = await redrives.begin(DEAD, RedriveRequest(rate_per_s=10))
        await elapse(1.55)
        began_ms = broker.now_ms()
        await redrives.end(task)
        assert broker.now_ms() - began_ms < 100
        assert task.state is State.STOPPED
        assert 10 <= task.moved_total <= 20
        assert await live(broker, "orders") == task.moved_total
        assert task.ended_at_ms is not None
        assert await run(broker, RedriveRequest()) is State.DONE
        assert await live(broker, "orders") == 40


async def test_a_redrive_that_is_stopped_in_the_middle_of_a_step_counts_that_step() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"a"] * 40)
        redrives = broker.queues.redrives
        task = await redrives.begin(DEAD, RedriveRequest())
        # It has begun and waits for its disk.
        await let_others_run(3)
        await redrives.end(task)
        assert task.state is State.STOPPED
        assert task.moved_total == await live(broker, "orders")


async def test_a_redrive_that_is_stopped_before_it_has_begun_moves_nothing() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(b"a")
        redrives = broker.queues.redrives
        task = await redrives.begin(DEAD, RedriveRequest())
        await redrives.end(task)
        assert (task.state, task.moved_total) == (State.STOPPED, 0)
        # To stop it again is to stop it once.
        await redrives.end(task)
        assert task.state is State.STOPPED


async def test_a_server_that_stops_ends_its_redrives() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"a"] * 20)
        task = await broker.queues.redrives.begin(DEAD, RedriveRequest(rate_per_s=0.01))
        await elapse(1)
        began_ms = broker.now_ms()
    assert task.state is State.STOPPED
    assert task.moved_total == 1
    assert broker.now_ms() - began_ms < 2_000


async def test_a_redrive_whose_dead_letters_are_deleted_fails_and_says_why() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"a"] * 20)
        task = await broker.queues.redrives.begin(DEAD, RedriveRequest(rate_per_s=10))
        await elapse(0.55)
        await broker.queues.delete(DEAD, with_dead_letters=False)
        assert task.running is not None
        await asyncio.wait([task.running])
        assert task.state is State.FAILED
        assert DEAD in str(task.error)


async def test_a_dry_run_says_what_would_go_and_moves_nothing() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"%d" % each for each in range(1_000)])
        await broker.bury(*[b"%d" % each for each in range(1_000)])
        task = await broker.queues.redrives.begin(DEAD, RedriveRequest(is_dry_run=True))
        assert (task.state, task.moved, task.remaining) == (State.DONE, {"orders": 2_000}, 0)
        assert await live(broker, DEAD) == 2_000
        some = await broker.queues.redrives.begin(DEAD, RedriveRequest(is_dry_run=True, most=1_500))
        assert (some.moved_total, some.remaining) == (1_500, 500)
        fitting = await broker.queues.redrives.begin(
            DEAD, RedriveRequest(is_dry_run=True, filter=MessageFilter(text=b"99"))
        )
        assert (fitting.moved_total, fitting.remaining) == (2 * 19, 2_000 - 2 * 19)


async def test_there_are_only_so_many_redrives_at_once() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"a"] * 200)
        redrives = broker.queues.redrives
        tasks = [await redrives.begin(DEAD, RedriveRequest(rate_per_s=0.001)) for _ in range(REDRIVES_MAX)]
        with pytest.raises(TooManyRedrives):
            await redrives.begin(DEAD, RedriveRequest())
        await redrives.end(tasks[0])
        await redrives.begin(DEAD, RedriveRequest(rate_per_s=0.001))


async def test_a_redrive_is_found_only_under_its_own_queue() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(b"a")
        task = await broker.queues.redrives.begin(DEAD, RedriveRequest())
        assert broker.queues.redrives.find(DEAD, task.id) is task
        for queue, task_id in (("orders", task.id), (DEAD, "r_0")):
            with pytest.raises(TaskNotFound):
                broker.queues.redrives.find(queue, task_id)


async def test_messages_that_cannot_be_buried_are_a_note_in_the_log_until_there_is_room() -> None:
    async with open_broker() as broker:
        await broker.store.create("orders", QueueSettings(size_max=1))
        await broker.bury(b"a")
        assert "store.dead_letters_full" not in broker.log_events.names()
        await broker.queues.send("orders", Drafts(bodies=[b"b"], deliveries_max=[1]))
        await broker.queues.release("orders", (await broker.take()).receipts(), Release(delay_ms=0, error="boom"))
        for _ in range(3):
            await broker.store.tidy()
        told = [fields for event, fields in broker.log_events.events if event.name == "store.dead_letters_full"]
        assert told == [{"queue": "orders", "dead_letters": DEAD}]


async def test_a_redrive_that_finds_no_dead_letters_says_where_they_may_be() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(b"a")
        redrives = broker.queues.redrives
        wrong = await redrives.begin("orders", RedriveRequest(is_dry_run=True))
        assert (wrong.state, wrong.moved_total) == (State.DONE, 0)
        assert wrong.reason == "nothing in 'orders' is a dead letter; what it buries goes to 'orders.dead'"
        assert (await redrives.begin(DEAD, RedriveRequest(is_dry_run=True))).reason is None
        task = await redrives.begin(DEAD, RedriveRequest())
        assert task.running is not None
        await asyncio.wait([task.running])
        empty = await redrives.begin(DEAD, RedriveRequest(is_dry_run=True))
        assert empty.reason == "nothing in 'orders.dead' is a dead letter"


async def test_a_redrive_of_a_queue_that_is_not_there_is_refused() -> None:
    async with open_broker(has_queue=True) as broker:
        for dead_letters, into in (("nowhere", None), ("orders", "nowhere")):
            with pytest.raises(QueueNotFound):
                await broker.queues.redrives.begin(dead_letters, RedriveRequest(into=into))
        assert broker.queues.redrives.of("orders") == []
