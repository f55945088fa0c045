"""The rows of the history: what is kept of a message when it is settled."""

import sys
from array import array
from collections.abc import Callable
from types import FrameType
from typing import Any

from penstock.contract.messages import MessageOutcome, Tier
from penstock.contract.queue_settings import History, QueueSettings
from penstock.core.queue.events import Acked, Event, Expired, Leased, Purged, QueueDeleted
from penstock.core.queue.message import Drafts, Run
from penstock.core.queue.queue import Queue
from penstock.core.queue.settlements import Settlement, settlements
from tests.core.queue.life import START_MS, Lease, Life


def told_of_ack(life: Life, lease: Lease, mask: int | None = None, *, outlives: bool = False) -> list[Settlement]:
    bits = lease.everything if mask is None else mask
    return told(life, life.queue.ack(lease.id, lease.token, bits, now_ms=life.now_ms, outlives=outlives))


def told(life: Life, event: Event | None) -> list[Settlement]:
    assert event is not None
    found = settlements(life.state, event)
    life.happen(event)
    # What a purge settled is made into facts after it.
    return list(found)


def test_a_thousand_messages_that_were_leased_and_acked_together_are_one_fact() -> None:
    life = Life()
    life.send(1_000)
    life.wait(10)
    lease = life.leased(1_000)
    life.wait(5)
    assert told_of_ack(life, lease) == [
        Settlement(
            queue=1,
            key=0 << 3 | Tier.NORMAL,
            count=1_000,
            home=1,
            lane=Tier.NORMAL,
            number=0,
            tier=Tier.NORMAL,
            group=b"",
            sent_at_ms=START_MS,
            first_leased_ms=START_MS + 10,
            last_leased_ms=START_MS + 10,
            settled_at_ms=START_MS + 15,
            deliveries=1,
            ending=MessageOutcome.ACKED,
            error="",
        )
    ]


def test_messages_of_a_run_that_were_sent_at_several_times_have_marks() -> None:
    life = Life()
    for _ in range(3):
        life.send(2)
        life.wait(1)
    (one,) = told_of_ack(life, life.leased(5))
    assert one.sent_at_ms == (array("Q", [0, 2, 4]), array("q", [START_MS, START_MS + 1, START_MS + 2]))
    assert one.count == 5


def test_a_lapsed_run_remembers_its_first_lease() -> None:
    life = Life()
    life.send(4)
    first = life.leased(2, lease_ms=100)
    life.wait(100)
    again = life.leased(4)
    assert again.deliveries == [2, 2, 1, 1]
    life.wait(7)
    retried, fresh = told_of_ack(life, again)
    assert (retried.first_leased_ms, retried.last_leased_ms, retried.deliveries) == (START_MS, START_MS + 100, 2)
    assert (fresh.first_leased_ms, fresh.last_leased_ms, fresh.deliveries) == (START_MS + 100, START_MS + 100, 1)
    assert not life.ack(first)


def test_a_whole_run_that_is_leased_again_is_one_fact_still() -> None:
    life = Life()
    life.send(10)
    life.leased(10, lease_ms=100)
    life.wait(100)
    (one,) = told_of_ack(life, life.leased(10))
    assert (one.count, one.first_leased_ms, one.last_leased_ms, one.deliveries) == (10, START_MS, START_MS + 100, 2)


def test_a_run_that_lapsed_and_then_failed_knows_its_first_and_its_last_lease() -> None:
    life = Life()
    life.send(2)
    life.leased(2, lease_ms=100)
    life.wait(100)
    life.release(life.leased(2))
    life.wait(5)
    for one in told(life, life.queue.purge(now_ms=life.now_ms)):
        assert (one.first_leased_ms, one.last_leased_ms, one.deliveries) == (START_MS, START_MS + 100, 2)


def test_the_next_lease_in_the_same_slot_has_times_of_its_own() -> None:
    life = Life()
    life.send(2)
    life.leased(1, lease_ms=100)
    life.wait(100)
    life.ack(life.leased(1))
    life.wait(5)
    (one,) = told_of_ack(life, life.leased(1))
    assert one.first_leased_ms == one.last_leased_ms == START_MS + 105


def test_extending_a_lease_does_not_move_the_time_of_leasing() -> None:
    life = Life()
    life.send()
    lease = life.leased()
    life.wait(500)
    life.extend(lease, 9_000)
    (one,) = told_of_ack(life, lease)
    assert one.last_leased_ms == START_MS


def test_an_ack_that_outlives_its_lease_is_told_of() -> None:
    life = Life()
    life.send(3)
    lease = life.leased(3, lease_ms=100)
    life.wait(150)
    (one,) = told_of_ack(life, lease, outlives=True)
    assert (one.count, one.first_leased_ms, one.settled_at_ms) == (3, START_MS, START_MS + 150)


def test_a_late_ack_of_an_escalated_message_knows_when_it_was_sent() -> None:
    life = Life()
    (message,) = life.send()
    life.wait(1)
    lease = life.leased(1, lease_ms=100)
    life.wait(150)
    life.escalate([message], Tier.CRITICAL)
    (one,) = told_of_ack(life, lease, outlives=True)
    assert (one.sent_at_ms, one.first_leased_ms, one.tier) == (START_MS, START_MS + 1, Tier.NORMAL)


def test_the_tier_is_the_one_the_message_was_served_at_even_if_it_aged_since() -> None:
    life = Life(QueueSettings(aging_ms=(0, 100, 100, 100, 100)))
    life.send(2, Tier.LOW)
    life.wait(99)
    lease = life.leased(1)
    life.wait(500)
    (one,) = told_of_ack(life, lease)
    assert one.tier == Tier.LOW
    (waiting,) = told(life, life.queue.purge(now_ms=life.now_ms))
    assert waiting.tier == Tier.CRITICAL


def test_a_group_is_told_of_at_the_tier_that_served_it() -> None:
    life = Life(QueueSettings(is_fifo=True))
    life.send(1, Tier.LOW, group=b"red")
    life.send(1, Tier.CRITICAL, group=b"red")
    assert [one.tier for one in told_of_ack(life, life.leased(2))] == [Tier.CRITICAL, Tier.CRITICAL]


def test_a_released_message_is_told_of_with_its_group_and_its_last_error() -> None:
    life = Life()
    life.send(group=b"red")
    life.release(life.leased(), error="no stock")
    life.wait(20)
    (one,) = told_of_ack(life, life.leased())
    assert (one.group, one.error, one.deliveries) == (b"red", "no stock", 2)
    assert (one.first_leased_ms, one.last_leased_ms) == (START_MS, START_MS + 20)


def test_a_message_keeps_its_identity_and_its_past_in_the_dead_letters() -> None:
    life = Life(QueueSettings(deliveries_max=1))
    life.send(3, Tier.HIGH)
    life.ack(life.leased(2))
    life.wait(10)
    life.release(life.leased(), error="boom")
    dead = Life(number=2)
    buried = life.queue.bury(into=2, room=9, now_ms=life.now_ms)
    assert buried is not None
    (end,) = settlements(life.state, buried)
    assert (end.queue, end.number, end.deliveries, end.ending, end.error) == (1, 2, 1, MessageOutcome.BURIED, "boom")
    assert settlements(dead.state, buried) == []
    dead.now_ms = life.now_ms
    dead.happen(buried)
    dead.wait(50)
    (again,) = told_of_ack(dead, dead.leased())
    assert (again.queue, again.key) == (2, 0 << 3 | Tier.HIGH)
    assert (again.home, again.lane, again.number) == (1, Tier.HIGH, 2)
    assert (again.sent_at_ms, again.first_leased_ms) == (START_MS, START_MS + 60)
    assert (again.deliveries, again.ending) == (2, MessageOutcome.ACKED)


def test_a_redrive_settles_a_message_in_the_dead_letters() -> None:
    life = Life(QueueSettings(deliveries_max=1))
    life.send()
    life.release(life.leased())
    dead = Life(number=2)
    buried = life.queue.bury(into=2, room=9, now_ms=life.now_ms)
    life.happen(buried)
    dead.happen(buried)
    redriven = dead.queue.redrive(into=1, most=1, now_ms=dead.now_ms)
    (end,) = told(dead, redriven)
    assert (end.queue, end.home, end.ending, end.first_leased_ms) == (2, 1, MessageOutcome.REDRIVEN, 0)
    assert redriven is not None
    assert settlements(life.state, redriven) == []


def test_what_expires_was_never_leased_or_is_told_of_with_its_leases() -> None:
    life = Life(QueueSettings(retention_ms=1_000))
    life.send(4)
    life.leased(1, lease_ms=100)
    life.wait(1_000)
    back, fresh = told(life, life.queue.expire(now_ms=life.now_ms).event)
    assert (back.count, back.deliveries, back.last_leased_ms, back.ending) == (1, 1, START_MS, MessageOutcome.EXPIRED)
    assert (fresh.count, fresh.deliveries, fresh.last_leased_ms, fresh.ending) == (3, 0, 0, MessageOutcome.EXPIRED)


def test_a_purge_and_a_deletion_tell_of_everything_leased_or_not() -> None:
    life = Life()
    life.send(5)
    life.send(2, group=b"red")
    life.send(1, delay_ms=50)
    life.leased(2)
    for event, ending in (
        (QueueDeleted(1, life.now_ms), MessageOutcome.DELETED),
        (Purged(1, life.now_ms), MessageOutcome.PURGED),
    ):
        found = settlements(life.state, event)
        assert sum(one.count for one in found) == 8
        assert {one.ending for one in found} == {ending}
        assert sum(one.count for one in found if one.last_leased_ms) == 2


def test_settling_ten_million_messages_of_one_run_makes_one_fact() -> None:
    queue = Queue(1)
    drafts = Drafts(bodies=[b""] * 10_000)
    for step in range(1_000):
        accepted = queue.send(drafts, now_ms=START_MS + step // 10)
        assert accepted.event is not None
        queue.apply(accepted.event)
    assert steps(lambda: settlements(queue.state, Purged(1, START_MS + 100))) < 10_000
    (one,) = settlements(queue.state, Purged(1, START_MS + 100))
    assert one.count == 10_000_000
    assert not isinstance(one.sent_at_ms, int)
    assert len(one.sent_at_ms[0]) == 100


def steps(act: Callable[[], object]) -> int:
    """Return how many lines of Python something takes, which is the same on every machine."""
    count = 0

    def trace(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def test_a_queue_without_a_history_tells_nothing() -> None:
    life = Life(QueueSettings(history=History.OFF))
    life.send()
    assert told_of_ack(life, life.leased()) == []


def test_an_event_that_settles_nothing_tells_nothing() -> None:
    life = Life()
    life.send()
    event = life.queue.lease(1, now_ms=life.now_ms, token=1)
    assert isinstance(event, Leased)
    assert told(life, event) == []


def test_telling_moves_time_to_the_event_first() -> None:
    life = Life(QueueSettings(retention_ms=1_000))
    life.send()
    lease = life.leased(1, lease_ms=500)
    (one,) = settlements(life.state, Expired(1, START_MS + 1_000, tuple(_runs(lease))))
    assert (one.last_leased_ms, one.settled_at_ms) == (START_MS, START_MS + 1_000)
    assert isinstance(life.queue.ack(lease.id, lease.token, 1, now_ms=START_MS + 1_000, outlives=True), Acked)


def _runs(lease: Lease) -> list[Run]:
    return [Run(message & 7, message >> 3, 1) for message in lease.messages]
