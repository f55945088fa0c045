"""Moves to a queue of another shard: three events in two journals, and nothing lost or doubled on the way."""

import pytest

from penstock.contract.messages import MessageOutcome, Tier, WaitReason
from penstock.contract.queue_settings import DedupScope, QueueSettings
from penstock.core.queue.events import Moving
from penstock.core.queue.explain import explain
from penstock.core.queue.queries import PendingMove, counts, dead_letters, moving
from penstock.core.queue.queue import Queue
from penstock.core.queue.settlements import Everything, settlements
from penstock.core.queue.snapshot import freeze, thaw
from tests.core.queue.life import START_MS, Life
from tests.steps import counted

FAR = 9
ONCE = QueueSettings(deliveries_max=1, retention_ms=1_000)


def spent(settings: QueueSettings = ONCE, *, count: int = 1, group: bytes = b"") -> tuple[Life, list[int]]:
    """A queue with messages that failed for the last time."""
    life = Life(settings)
    messages = life.send(count, group=group)
    for _ in messages:
        life.release(life.leased(), error="no stock")
        if group:
            break
    return life, messages


def start(life: Life, *, most: int = 10, is_redrive: bool = False) -> PendingMove:
    into = FAR if life.state.queue == 1 else 1
    event = life.queue.start_move(into=into, most=most, now_ms=life.now_ms, is_redrive=is_redrive)
    assert event is not None
    life.happen(event)
    found = moving(life.state)
    assert found is not None
    return found


def end(life: Life, *, is_done: bool) -> bool:
    return life.happen(life.queue.end_move(is_done=is_done, now_ms=life.now_ms))


def arrive(far: Life, source: int, found: PendingMove) -> bool:
    return far.happen(far.queue.arrive(source, found.sequence, *found[4:], far.now_ms))


def test_a_spent_message_moves_to_the_dead_letters_of_another_shard() -> None:
    life, (message,) = spent()
    far = Life(number=FAR)
    found = start(life)
    assert (found.into, found.sequence, found.messages, found.errors) == (FAR, 1, (message,), ("no stock",))
    assert arrive(far, 1, found)
    assert end(life, is_done=True)
    assert life.state.live == 0
    (dead,) = dead_letters(far.state)
    assert dead.origin is not None
    assert dead.origin[:3] == (1, Tier.NORMAL, 0)
    assert (dead.error, dead.origin.deliveries, dead.deliveries) == ("no stock", 1, 0)


def test_a_move_that_arrives_twice_is_numbered_once() -> None:
    life, _ = spent()
    far = Life(number=FAR)
    found = start(life)
    assert arrive(far, 1, found)
    assert not arrive(far, 1, found)
    far.queue.state = thaw(freeze(far.state))
    assert not arrive(far, 1, found)
    assert arrive(far, 2, found._replace(origins=tuple(one._replace(queue=2) for one in found.origins)))


def test_a_queue_has_one_move_on_its_way_at_a_time() -> None:
    life, _ = spent(count=3)
    start(life, most=1)
    assert life.queue.start_move(into=FAR, most=1, now_ms=life.now_ms, is_redrive=False) is None
    end(life, is_done=True)
    assert start(life, most=5).sequence == 2
    assert counts(life.state).moving == 2


def test_what_is_on_its_way_is_not_leased_expired_purged_or_escalated() -> None:
    life, (message,) = spent()
    start(life)
    life.happen(life.queue.change(QueueSettings(deliveries_max=0, retention_ms=1_000), now_ms=life.now_ms))
    life.wait(5_000)
    assert life.lease() is None
    assert not life.escalate([message], Tier.CRITICAL)
    assert life.queue.expire(now_ms=life.now_ms).event is None
    assert life.queue.purge(now_ms=life.now_ms) is None
    life.send(3)
    life.send(2, group=b"red")
    life.leased(4)
    purged = life.queue.purge(now_ms=life.now_ms)
    assert purged is not None
    assert sum(one.count for one in settlements(life.state, purged)) == 5
    life.happen(purged)
    assert (life.place(message), life.state.live) == ("moving", 1)
    seen = explain(life.state, message)
    assert seen is not None
    assert seen.wait_reason is WaitReason.MOVING


def test_a_purge_during_a_move_takes_as_long_for_many_messages_as_for_few() -> None:
    life, messages = spent(count=3)
    start(life)
    life.send(1_000, group=b"red")
    life.send(1_000, delay_ms=50)
    purged = life.queue.purge(now_ms=life.now_ms)
    assert purged is not None
    with counted() as steps:
        told = settlements(life.state, purged)
        life.happen(purged)
    assert steps.total < 1_000, steps.culprit
    assert isinstance(told, Everything)
    assert sum(one.count for one in told) == told.count == 2_000
    assert [life.place(message) for message in messages] == ["moving"] * 3
    assert freeze(thaw(freeze(life.state))) == freeze(life.state)


@pytest.mark.parametrize("is_done", [False, True])
def test_what_was_on_its_way_at_a_purge_comes_back_as_it_was(is_done: bool) -> None:
    settings = QueueSettings(is_fifo=True, deliveries_max=1, dedup_scope=DedupScope.LIVE)
    life = Life(settings)
    life.send(5, group=b"blue")
    (head, _) = life.send(2, group=b"red", ids=[b"first", b"second"])
    life.leased(1)
    life.release(life.leased(1), error="no stock")
    start(life)
    life.happen(life.queue.purge(now_ms=life.now_ms))
    assert life.send(1, group=b"red", ids=[b"first"]) == [head], "its id is taken until it is gone"
    (behind,) = life.send(1, group=b"red")
    assert life.lease() is None, "its group is closed"
    assert end(life, is_done=is_done)
    assert life.place(head) == (None if is_done else "spent")
    if not is_done:
        start(life)
        assert moving(life.state) is not None
        assert moving(life.state).errors == ("no stock",)  # type: ignore[union-attr]
        assert end(life, is_done=True)
    assert life.leased().messages == [behind]


def test_a_late_receipt_is_worth_nothing_once_the_message_is_on_its_way() -> None:
    life = Life(ONCE)
    life.send()
    lease = life.leased(1, lease_ms=100)
    life.wait(100)
    start(life)
    assert not life.ack(lease, outlives=True)


def test_a_fifo_group_stays_closed_behind_a_message_that_moves() -> None:
    life, (head, second) = spent(QueueSettings(is_fifo=True, deliveries_max=1), count=2, group=b"red")
    start(life)
    assert life.lease() is None
    seen = explain(life.state, second)
    assert seen is not None
    assert seen.wait_reason is WaitReason.GROUP_BLOCKED
    assert life.place(head) == "moving"
    end(life, is_done=True)
    assert life.leased().messages == [second]


def test_a_move_that_is_not_taken_puts_spent_messages_back() -> None:
    life, (message,) = spent()
    start(life)
    assert end(life, is_done=False)
    assert life.place(message) == "spent"
    assert not end(life, is_done=False)


def test_a_message_that_comes_back_tries_again_if_the_limit_was_raised_meanwhile() -> None:
    life, (message,) = spent()
    start(life)
    life.happen(life.queue.change(QueueSettings(deliveries_max=5), now_ms=life.now_ms))
    assert life.place(message) == "moving"
    end(life, is_done=False)
    assert life.leased().messages == [message]


def test_dead_letters_go_back_to_another_shard_and_rest_again_if_they_are_not_taken() -> None:
    life, _ = spent(count=2)
    dead = Life(number=FAR)
    arrive(dead, 1, start(life))
    resting = dead.leased()
    dead.release(resting, delay_ms=500)
    found = start(dead, is_redrive=True)
    assert len(found.messages) == 2
    dead.wait(100)
    end(dead, is_done=False)
    assert sorted(str(dead.place(message)) for message in found.messages) == ["resting", "waiting"]
    dead.wait(400)
    assert [dead.place(message) for message in found.messages] == ["waiting", "waiting"]


def test_a_dead_letter_that_waited_waits_again_whatever_rested_in_its_row_before() -> None:
    life, _ = spent(count=2)
    dead = Life(number=FAR)
    arrive(dead, 1, start(life, most=1))
    end(life, is_done=True)
    dead.release(dead.leased(), delay_ms=100_000)
    start(dead, is_redrive=True)
    end(dead, is_done=True)
    arrive(dead, 1, start(life))
    (message,) = start(dead, is_redrive=True).messages
    end(dead, is_done=False)
    assert dead.place(message) == "waiting"


def test_the_end_of_a_move_tells_what_became_of_its_messages() -> None:
    for is_redrive, ending in ((False, MessageOutcome.BURIED), (True, MessageOutcome.REDRIVEN)):
        life, _ = spent()
        if is_redrive:
            dead = Life(number=FAR)
            arrive(dead, 1, start(life))
            life = dead
        moved = start(life, is_redrive=is_redrive)
        event = life.queue.end_move(is_done=True, now_ms=life.now_ms)
        assert event is not None
        (one,) = settlements(life.state, event)
        assert (one.home, one.ending, one.deliveries, one.error) == (1, ending, 1, "no stock")
        assert one.key == moved.messages[0]
        undone = life.queue.end_move(is_done=False, now_ms=life.now_ms)
        assert undone is not None
        assert settlements(life.state, undone) == []


def test_a_move_survives_a_restart() -> None:
    life, (message,) = spent()
    found = start(life)
    again = Queue.replay(life.history)
    assert moving(again.state) == found
    again.state = thaw(freeze(again.state))
    assert moving(again.state) == found
    event = again.end_move(is_done=False, now_ms=START_MS + 1)
    assert event is not None
    again.apply(event)
    again_started = again.start_move(into=FAR, most=1, now_ms=START_MS + 1, is_redrive=False)
    assert isinstance(again_started, Moving)
    assert again_started.sequence == 2
    assert message >> 3 == again_started.runs[0].first
