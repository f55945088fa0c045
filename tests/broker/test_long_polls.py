"""Long polls in virtual time: nothing is missed, one message wakes one request, and none whose client is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from penstock.broker.long_polls import TooManyWaiting
from penstock.broker.queues import Stopping
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.errors import QueueNotFound
from penstock.store.interface import Delivery, RedriveOrder, Release
from tests.broker.brokers import Broker, Poll, open_broker, settle
from tests.simulation.clock import SimClock
from tests.simulation.world import Machine
from tests.waiting import elapse, let_others_run

# A wake, the lease that follows, and what the simulated disk takes for both.
SOON_MS = 60


async def turns_until(is_so: Callable[[], bool]) -> None:
    """Let others go on, turn by turn, to stop them at a moment that no event tells of."""
    for _ in range(10_000):
        if is_so():
            return
        await let_others_run()
    raise AssertionError("it never is so")


async def answered_within(
    broker: Broker, act: Callable[[], Awaitable[object]], *, after_ms: int = 0, wait_ms: int = 20_000
) -> Delivery:
    """Let one wait, act, and return what it gets, which it gets soon after, or at a time after the deed."""
    poll = Poll(broker)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(poll.wait(wait_ms=wait_ms))
        await settle()
        began_ms = broker.now_ms()
        await act()
    delivery = waiting.result()
    assert delivery is not None
    assert poll.answered_at_ms is not None
    assert after_ms <= poll.answered_at_ms - began_ms <= after_ms + SOON_MS
    return delivery


async def test_a_long_poll_is_answered_as_soon_as_a_message_is_sent() -> None:
    async with open_broker(has_queue=True) as broker:
        delivery = await answered_within(broker, lambda: broker.send(b"a"))
        assert bytes(delivery.bodies[0]) == b"a"


async def test_a_long_poll_without_messages_ends_after_its_time() -> None:
    async with open_broker(has_queue=True) as broker:
        began_ms = broker.now_ms()
        assert await Poll(broker).wait(wait_ms=5_000) is None
        assert 5_000 <= broker.now_ms() - began_ms <= 5_000 + SOON_MS
        assert broker.queues.waiting.count == 0


async def test_a_long_poll_finds_what_is_there_already() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.send(b"a")
        began_ms = broker.now_ms()
        assert await Poll(broker).wait() is not None
        assert broker.now_ms() - began_ms <= SOON_MS


async def test_a_long_poll_is_answered_when_a_delay_ends() -> None:
    async with open_broker(has_queue=True) as broker:
        await answered_within(broker, lambda: broker.send(b"a", delay_ms=3_000), after_ms=3_000)


async def test_a_long_poll_is_answered_when_a_delay_ends_that_was_set_before() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.send(b"a", delay_ms=3_000)
        await answered_within(broker, let_others_run, after_ms=2_900)


async def test_a_long_poll_is_answered_when_a_lease_lapses() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.send(b"a")
        await broker.take(lease_ms=2_000)
        delivery = await answered_within(broker, let_others_run, after_ms=1_900)
        assert delivery.deliveries[0] == 2


async def test_a_long_poll_is_answered_when_a_lease_lapses_that_was_taken_while_it_waited() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.store.change("orders", QueueSettings(is_paused=True))
        await broker.send(b"a")
        polls = [Poll(broker), Poll(broker)]
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(poll.wait()) for poll in polls]
            await settle()
            await broker.store.change("orders", QueueSettings())
            await settle()
            # The first has it, for 30 s in this test; it is extended down to one second.
            first = waiting[0].result()
            assert first is not None
            began_ms = broker.now_ms()
            await broker.queues.extend("orders", first.receipts(), lease_ms=1_000)
        assert polls[1].bodies == [b"a"]
        assert polls[1].answered_at_ms is not None
        assert 1_000 <= polls[1].answered_at_ms - began_ms <= 1_000 + SOON_MS


async def test_a_long_poll_is_answered_when_a_message_is_released() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.send(b"a")
        taken = await broker.take()
        await answered_within(
            broker, lambda: broker.queues.release("orders", taken.receipts(), Release(delay_ms=0, error=""))
        )


async def test_a_long_poll_is_answered_when_a_released_message_has_rested() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.send(b"a")
        taken = await broker.take()
        await answered_within(
            broker,
            lambda: broker.queues.release("orders", taken.receipts(), Release(delay_ms=4_000, error="")),
            after_ms=4_000,
        )


async def test_a_long_poll_is_answered_when_dead_letters_come_back() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(b"a")
        delivery = await answered_within(broker, lambda: broker.store.redrive("orders.dead", RedriveOrder(most=1)))
        assert bytes(delivery.bodies[0]) == b"a"


async def test_a_long_poll_of_dead_letters_is_answered_by_a_burial() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(b"a")
        poll = Poll(broker)
        taken = await broker.take(queue="orders.dead")
        await broker.queues.ack("orders.dead", taken.receipts())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(poll.wait(queue="orders.dead"))
            await settle()
            await broker.bury(b"b")
        assert poll.bodies == [b"b"]


async def test_a_long_poll_is_answered_when_the_queue_is_resumed() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.store.change("orders", QueueSettings(is_paused=True))
        await broker.send(b"a")
        await answered_within(broker, lambda: broker.store.change("orders", QueueSettings()))


async def test_a_long_poll_of_a_group_in_order_is_answered_when_its_head_is_acked() -> None:
    async with open_broker() as broker:
        await broker.store.create("orders", QueueSettings(is_fifo=True))
        await broker.queues.send("orders", Drafts(bodies=[b"a", b"b"], groups=[b"g", b"g"]))
        taken = await broker.take()
        delivery = await answered_within(broker, lambda: broker.queues.ack("orders", taken.receipts()))
        assert bytes(delivery.bodies[0]) == b"b"


@pytest.mark.parametrize("seed", range(8))
async def test_nothing_is_missed_between_asking_and_waiting(seed: int) -> None:
    """Senders and pollers begin in every order, and each poller gets one message at once."""
    async with open_broker(has_queue=True) as broker:
        began_ms = broker.now_ms()
        polls = [Poll(broker) for _ in range(20)]
        async with asyncio.TaskGroup() as tasks:
            for poll in polls:
                tasks.create_task(poll.wait())
                tasks.create_task(broker.send(b"a"))
        assert all(poll.bodies == [b"a"] for poll in polls)
        assert broker.now_ms() - began_ms < 500


async def test_one_message_wakes_one_of_thousands() -> None:
    async with open_broker(has_queue=True) as broker:
        polls = [Poll(broker) for _ in range(3_000)]
        asked = 0
        lease = broker.store.lease

        async def counted(queue: str, *, want: int, lease_ms: int | None = None) -> Delivery | None:
            nonlocal asked
            asked += 1
            return await lease(queue, want=want, lease_ms=lease_ms)

        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(poll.wait()) for poll in polls]
            await settle(200)
            assert broker.queues.waiting.count == 3_000
            broker.store.lease = counted  # type: ignore[method-assign] # To count is not to change what it does.
            await broker.send(b"a")
            await settle()
            assert sum(task.done() for task in waiting) == 1
            assert asked <= 2
            # The longest waiting is first.
            assert waiting[0].done()
            broker.queues.waiting.stop()
        assert sum(poll.bodies == [b"a"] for poll in polls) == 1


async def test_a_batch_of_messages_reaches_as_many_as_wait() -> None:
    async with open_broker(has_queue=True) as broker:
        polls = [Poll(broker) for _ in range(100)]
        async with asyncio.TaskGroup() as tasks:
            for poll in polls:
                tasks.create_task(poll.wait())
            await settle(200)
            began_ms = broker.now_ms()
            await broker.send(*[b"%d" % each for each in range(100)])
        assert sorted(body for poll in polls for body in poll.bodies) == sorted(b"%d" % each for each in range(100))
        assert broker.now_ms() - began_ms < 1_000


async def test_everyone_who_waits_for_a_deleted_queue_is_told() -> None:
    async with open_broker(has_queue=True) as broker:
        polls = [Poll(broker) for _ in range(50)]

        async def wait(poll: Poll) -> bool:
            with pytest.raises(QueueNotFound):
                await poll.wait()
            return True

        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(wait(poll)) for poll in polls]
            await settle(100)
            began_ms = broker.now_ms()
            await broker.queues.delete("orders", with_dead_letters=False)
        assert all(task.result() for task in waiting)
        assert broker.now_ms() - began_ms < 500


async def test_stopping_answers_everyone_and_takes_no_new_request() -> None:
    async with open_broker(has_queue=True) as broker:
        polls = [Poll(broker) for _ in range(50)]
        async with asyncio.TaskGroup() as tasks:
            for poll in polls:
                tasks.create_task(poll.wait())
            await settle(100)
            began_ms = broker.now_ms()
            broker.queues.waiting.stop()
        assert all(poll.bodies == [] for poll in polls)
        assert broker.now_ms() - began_ms < 500
        with pytest.raises(Stopping):
            await Poll(broker).wait()


async def test_a_message_is_not_given_to_a_client_that_is_gone() -> None:
    """It goes to the next who waits, and counts no delivery."""
    async with open_broker(has_queue=True) as broker:
        first, second = Poll(broker), Poll(broker)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(first.wait())
            await settle()
            waiting = tasks.create_task(second.wait())
            await settle()
            first.go()
            began_ms = broker.now_ms()
            await broker.send(b"a")
        delivery = waiting.result()
        assert first.bodies == []
        assert second.bodies == [b"a"]
        assert delivery is not None
        assert delivery.deliveries[0] == 1
        assert broker.now_ms() - began_ms <= 2 * SOON_MS


async def test_a_client_that_goes_when_it_has_been_woken_leaves_the_message_to_the_next() -> None:
    async with open_broker(has_queue=True) as broker:
        first, second = Poll(broker), Poll(broker)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(first.wait())
            await settle()
            waiting = tasks.create_task(second.wait())
            await settle()
            sending = tasks.create_task(broker.send(b"a"))
            await turns_until(lambda: broker.store.has_ready("orders"))
            # Woken in this very turn, before it can ask.
            first.go()
            await sending
        delivery = waiting.result()
        assert delivery is not None
        assert delivery.deliveries[0] == 1


async def test_what_is_leased_for_a_client_that_goes_meanwhile_goes_to_another_at_once() -> None:
    async with open_broker(has_queue=True) as broker:
        first, second = Poll(broker), Poll(broker)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(first.wait())
            await settle()
            tasks.create_task(second.wait())
            await settle()
            sending = tasks.create_task(broker.send(b"a"))
            await turns_until(lambda: broker.store.has_ready("orders"))
            await turns_until(lambda: not broker.store.has_ready("orders"))
            # Leased, and on its way to the disk.
            assert first.answered_at_ms is None
            first.go()
            began_ms = broker.now_ms()
            await sending
        assert first.bodies == []
        assert second.bodies == [b"a"]
        assert broker.now_ms() - began_ms <= 3 * SOON_MS


async def test_a_poll_that_is_woken_at_the_end_of_its_time_leaves_no_other_asleep() -> None:
    """A release with a delay wakes one for nothing yet. If that one leaves, another has to look when it is time."""
    async with open_broker(has_queue=True) as broker:
        await broker.send(b"a")
        taken = await broker.take()
        short, long = Poll(broker), Poll(broker)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(short.wait(wait_ms=1_000))
            await settle()
            tasks.create_task(long.wait())
            await elapse(1.0 - 0.051 - 0.0005)
            began_ms = broker.now_ms()
            await broker.queues.release("orders", taken.receipts(), Release(delay_ms=3_000, error=""))
        assert short.bodies == []
        assert long.bodies == [b"a"]
        assert long.answered_at_ms is not None
        assert long.answered_at_ms - began_ms <= 3_000 + SOON_MS


async def test_a_poll_that_is_woken_and_gets_something_else_leaves_no_other_asleep() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.send(b"late")
        taken = await broker.take()
        first, second = Poll(broker), Poll(broker)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(first.wait())
            await settle()
            tasks.create_task(second.wait())
            await settle()
            # The release wakes the first, which finds what the wake was not for: that is hidden from the broker.
            watchers = broker.store._shards.all[0].watchers
            releasing = tasks.create_task(
                broker.queues.release("orders", taken.receipts(), Release(delay_ms=3_000, error=""))
            )
            leases = broker.store._shards.all[0].queue("orders").state.leases
            await turns_until(lambda: not leases.live)
            kept, watchers[:] = list(watchers), []
            await broker.store.send("orders", Drafts(bodies=[b"soon"]))
            watchers[:] = kept
            began_ms = broker.now_ms()
            await releasing
        assert {*first.bodies, *second.bodies} == {b"soon", b"late"}
        assert broker.now_ms() - began_ms <= 3_000 + 2 * SOON_MS


async def test_a_cancelled_long_poll_passes_its_wake_on() -> None:
    async with open_broker(has_queue=True) as broker:
        first, second = Poll(broker), Poll(broker)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(first.wait())
            await settle()
            tasks.create_task(second.wait())
            await settle()
            broker.queues.waiting.wake("orders")
            waiting.cancel()
            began_ms = broker.now_ms()
            await broker.send(b"a")
        assert second.bodies == [b"a"]
        assert broker.now_ms() - began_ms <= 2 * SOON_MS


async def test_more_long_polls_than_may_wait_are_turned_away() -> None:
    async with open_broker(has_queue=True, long_polls_max=2) as broker:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):
                tasks.create_task(Poll(broker).wait(wait_ms=1_000))
            await settle()
            with pytest.raises(TooManyWaiting) as refused:
                await Poll(broker).wait()
            assert refused.value.most == 2
        # Their places are free again.
        assert await Poll(broker).wait(wait_ms=1) is None


async def test_thousands_who_wait_leave_nothing_behind() -> None:
    async with open_broker(has_queue=True) as broker:
        async with asyncio.TaskGroup() as tasks:
            for each in range(2_000):
                tasks.create_task(Poll(broker).wait(wait_ms=1_000 + each))
        assert broker.queues.waiting.count == 0
        assert broker.queues.waiting._waiting == {}


async def test_a_queue_that_keeps_being_paused_keeps_its_long_polls() -> None:
    async with open_broker(has_queue=True) as broker:
        paused = replace(QueueSettings(), is_paused=True)
        poll = Poll(broker)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(poll.wait())
            await settle()
            for _ in range(3):
                await broker.store.change("orders", paused)
                await broker.store.change("orders", QueueSettings())
            await broker.store.change("orders", paused)
            await broker.send(b"a")
            await settle()
            assert not waiting.done()
            await broker.store.change("orders", QueueSettings())
        assert poll.bodies == [b"a"]


async def test_a_store_that_is_ahead_of_the_clock_wakes_in_time_all_the_same() -> None:
    """The clock was set back by an hour: the store goes on from where it was, and so do delays and leases."""
    machine = Machine(seed=0)
    async with open_broker(has_queue=True, machine=machine) as broker:
        machine.clock.advance_ms(3_600_000)
        await broker.send(b"a")
    machine.kill()
    machine.clock = SimClock()
    async with open_broker(machine=machine) as broker:
        assert broker.queues.now_ms() - broker.now_ms() >= 3_500_000
        await broker.take(lease_ms=3_000)
        delivery = await answered_within(broker, let_others_run, after_ms=2_900)
        assert delivery.deliveries[0] == 2
