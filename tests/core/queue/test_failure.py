"""Failure: a released message rests, a spent one is buried, a buried one can be sent back."""

from itertools import pairwise

import pytest

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Origin
from penstock.core.queue.queries import dead_letters, find, identity, look
from penstock.core.queue.retry import backoff_ms
from tests.core.queue.life import START_MS, Life

DEAD = 2


def test_a_released_message_rests_for_its_backoff() -> None:
    life = Life(QueueSettings(backoff_ms_base=1_000, backoff_ms_max=60_000))
    (message,) = life.send(1)
    life.release(life.leased(), delay_ms=None)
    seen = look(life.state, message)
    assert seen is not None
    assert (seen.place, seen.visible_at_ms, seen.error) == ("resting", START_MS + 500, "boom")
    life.wait(499)
    assert life.lease() is None
    life.wait(1)
    assert life.leased().deliveries == [2]


def test_messages_that_failed_together_do_not_return_as_a_herd() -> None:
    life = Life(QueueSettings(backoff_ms_base=60_000, backoff_ms_max=60_000))
    life.send(100)
    life.release(life.leased(100), delay_ms=None)
    times = sorted(seen.visible_at_ms for message in range(100) if (seen := look(life.state, message << 3 | 2)))
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) < 2_000


def test_the_backoff_doubles_up_to_its_ceiling() -> None:
    settings = QueueSettings(backoff_ms_base=100, backoff_ms_max=1_000)
    assert [backoff_ms(settings, attempt, 0.999_999) for attempt in (1, 2, 4, 5, 10_000)] == [99, 199, 799, 999, 999]


def test_without_jitter_a_released_message_rests_for_the_whole_backoff() -> None:
    life = Life(QueueSettings(backoff_ms_base=1_000, backoff_ms_max=60_000, has_jitter=False))
    messages = life.send(3)
    life.release(life.leased(3), delay_ms=None)
    for message in messages:
        seen = look(life.state, message)
        assert seen is not None
        assert seen.visible_at_ms == START_MS + 1_000


def test_a_released_message_keeps_its_tier() -> None:
    life = Life()
    (message,) = life.send(1, Tier.HIGH)
    life.release(life.leased(), delay_ms=10)
    life.wait(10)
    assert life.leased().tiers == [Tier.HIGH]
    assert life.tier(message) == Tier.HIGH


def test_a_message_given_back_without_delay_waits_behind_those_already_waiting() -> None:
    life = Life()
    first, second = life.send(2)
    life.wait(1)
    life.release(life.leased(1), delay_ms=0)
    assert life.drain() == [second, first]


def test_a_message_whose_deliveries_are_spent_is_buried_with_its_story() -> None:
    life, dead = Life(QueueSettings(deliveries_max=2)), Life(QueueSettings(deliveries_max=0), number=DEAD)
    (message,) = life.send(1, Tier.HIGH, group=b"a")
    life.release(life.leased(), error="first")
    life.wait(5)
    life.release(life.leased(), error="second")
    assert life.place(message) == "spent"
    assert life.lease() is None
    event = life.queue.bury(into=DEAD, room=1, now_ms=life.now_ms)
    assert event is not None
    life.happen(event)
    dead.happen(event)
    assert life.state.live == 0
    (buried,) = dead_letters(dead.state)
    assert buried.origin == Origin(1, Tier.HIGH, message >> 3, START_MS, 2)
    assert (buried.error, buried.group, buried.tier) == ("second", b"a", Tier.HIGH)


def test_a_lapsed_lease_spends_deliveries_too() -> None:
    life = Life(QueueSettings(deliveries_max=1))
    sent = life.send(3)
    life.leased(3, lease_ms=100)
    life.wait(100)
    assert [life.place(message) for message in sent] == ["spent"] * 3


def test_a_message_may_have_a_delivery_limit_of_its_own() -> None:
    life = Life(QueueSettings(deliveries_max=5))
    (message,) = life.send(1, deliveries_max=1)
    life.release(life.leased())
    assert life.place(message) == "spent"


def test_a_queue_that_never_buries_knows_no_limits_of_messages() -> None:
    life = Life(QueueSettings(deliveries_max=0))
    (message,) = life.send(1, deliveries_max=1)
    life.release(life.leased(), delay_ms=10)
    assert life.place(message) == "resting"
    life.wait(10)
    life.leased(lease_ms=100)
    life.wait(100)
    assert life.place(message) == "waiting"


def test_while_the_dead_letters_are_full_spent_messages_stay_and_are_counted() -> None:
    life = Life(QueueSettings(deliveries_max=1))
    life.send(3)
    life.release(life.leased(3))
    assert life.queue.bury(into=DEAD, room=0, now_ms=life.now_ms) is None
    event = life.queue.bury(into=DEAD, room=2, now_ms=life.now_ms)
    assert event is not None
    assert len(event.runs) == 2
    life.happen(event)
    assert len(life.state.spent) == 1


def test_a_raised_limit_lets_spent_messages_try_again() -> None:
    life = Life(QueueSettings(deliveries_max=1))
    (message,) = life.send(1)
    life.release(life.leased())
    life.happen(life.queue.change(QueueSettings(deliveries_max=2), now_ms=life.now_ms))
    assert life.leased().messages == [message]


@pytest.fixture
def lives() -> tuple[Life, Life]:
    """A queue, and its dead letters with three messages of it."""
    life, dead = Life(QueueSettings(deliveries_max=1)), Life(QueueSettings(deliveries_max=0), number=DEAD)
    life.send(3)
    life.release(life.leased(3))
    event = life.queue.bury(into=DEAD, room=9, now_ms=life.now_ms)
    life.happen(event)
    dead.happen(event)
    return life, dead


def test_a_redriven_message_starts_afresh_and_keeps_its_id(lives: tuple[Life, Life]) -> None:
    life, dead = lives
    event = dead.queue.redrive(into=1, now_ms=dead.now_ms, most=1)
    assert event is not None
    dead.happen(event)
    life.happen(event)
    lease = life.leased()
    assert lease.deliveries == [1]
    assert identity(life.state, lease.messages[0]) == (1, Tier.NORMAL, 0)
    assert find(life.state, 1, Tier.NORMAL, 0) == lease.messages[0]
    assert dead.state.live == 2


def test_a_message_buried_twice_still_names_its_first_queue(lives: tuple[Life, Life]) -> None:
    life, dead = lives
    event = dead.queue.redrive(into=1, now_ms=dead.now_ms, most=9)
    dead.happen(event)
    life.happen(event)
    life.release(life.leased(3))
    again = life.queue.bury(into=DEAD, room=9, now_ms=life.now_ms)
    assert again is not None
    assert [origin[:3] for origin in again.origins] == [(1, 2, 0), (1, 2, 1), (1, 2, 2)]
    assert [origin.deliveries for origin in again.origins] == [2, 2, 2]


def test_a_redrive_may_name_its_messages(lives: tuple[Life, Life]) -> None:
    _, dead = lives
    wanted = [seen.message for seen in dead_letters(dead.state)][1]
    event = dead.queue.redrive(into=1, now_ms=dead.now_ms, most=9, only={wanted})
    assert event is not None
    assert [run.first << 3 | run.lane for run in event.runs] == [wanted]


def test_a_redrive_that_is_not_applied_is_a_dry_run(lives: tuple[Life, Life]) -> None:
    _, dead = lives
    assert dead.queue.redrive(into=1, now_ms=dead.now_ms, most=2) is not None
    assert dead.state.live == 3


def test_a_redrive_leaves_alone_what_came_from_elsewhere(lives: tuple[Life, Life]) -> None:
    _, dead = lives
    assert dead.queue.redrive(into=7, now_ms=dead.now_ms, most=9, origin=7) is None


def test_a_redrive_leaves_leased_dead_letters_alone(lives: tuple[Life, Life]) -> None:
    _, dead = lives
    dead.leased(2)
    event = dead.queue.redrive(into=1, now_ms=dead.now_ms, most=9)
    assert event is not None
    assert len(event.runs) == 1


def test_messages_older_than_the_queue_keeps_them_are_let_go() -> None:
    life = Life(QueueSettings(retention_ms=1_000))
    life.send(2)
    life.send(1, group=b"a")
    life.wait(500)
    (young,) = life.send(1)
    held = life.leased(1)
    life.wait(500)
    event, *_ = life.queue.expire(now_ms=life.now_ms)
    assert event is not None
    life.happen(event)
    assert life.state.live == 2
    assert life.place(young) == "waiting"
    assert life.place(held.messages[0]) == "leased", "what is held is not taken away"


def test_a_delayed_message_is_hidden_until_its_time() -> None:
    life = Life()
    (message,) = life.send(1, delay_ms=1_000)
    assert life.place(message) == "resting"
    life.wait(999)
    assert life.lease() is None
    life.wait(1)
    assert life.leased().messages == [message]


def test_a_queue_may_delay_every_message() -> None:
    life = Life(QueueSettings(delay_ms=100))
    life.send(1)
    assert life.lease() is None
    life.wait(100)
    assert life.lease() is not None


def test_a_rejected_message_is_spent_at_once_with_the_reason() -> None:
    life = Life(QueueSettings(deliveries_max=5))
    run, other, row = [*life.send(2), *life.send(1, group=b"a")]
    lease = life.leased(3)
    life.reject(lease, 1 << lease.messages.index(run) | 1 << lease.messages.index(row), error="no such customer")
    assert [life.place(message) for message in (run, row, other)] == ["spent", "spent", "leased"]
    seen = look(life.state, run)
    assert seen is not None
    assert seen.error == "no such customer"
    event = life.queue.bury(into=DEAD, room=5, now_ms=life.now_ms)
    assert event is not None
    assert event.errors == ("no such customer",) * 2


def test_a_rejected_message_stays_spent_when_the_limit_is_raised() -> None:
    life = Life(QueueSettings(deliveries_max=2))
    (message,) = life.send(1, deliveries_max=4)
    life.reject(life.leased())
    life.happen(life.queue.change(QueueSettings(deliveries_max=9), now_ms=life.now_ms))
    assert life.place(message) == "spent"
    assert life.lease() is None


def test_a_rejected_message_returns_where_nothing_is_buried() -> None:
    life = Life(QueueSettings(deliveries_max=0, backoff_ms_base=1_000))
    (message,) = life.send(1)
    life.reject(life.leased())
    assert life.place(message) == "resting"
    life.wait(500)
    assert life.leased().messages == [message]


def test_a_rejected_message_of_a_fifo_group_lets_the_next_one_go_once_it_is_buried() -> None:
    life = Life(QueueSettings(deliveries_max=3, is_fifo=True))
    first, second = life.send(2, group=b"a")
    life.reject(life.leased(1))
    assert life.lease() is None
    life.happen(life.queue.bury(into=DEAD, room=1, now_ms=life.now_ms))
    assert life.place(first) is None
    assert life.leased().messages == [second]


def test_a_message_that_is_given_back_untouched_was_never_delivered() -> None:
    life = Life(QueueSettings(deliveries_max=1))
    plain, grouped = [*life.send(1), *life.send(1, group=b"a")]
    for _ in range(3):
        life.give_back(life.leased(2))
        assert [life.place(message) for message in (plain, grouped)] == ["waiting", "waiting"]
    lease = life.leased(2)
    assert lease.deliveries == [1, 1]
    life.release(lease)
    assert [life.place(message) for message in (plain, grouped)] == ["spent", "spent"]


def test_a_group_that_is_given_back_keeps_its_order() -> None:
    life = Life(QueueSettings(deliveries_max=2, is_fifo=True))
    messages = life.send(4, group=b"a")
    lease = life.leased(4)
    life.give_back(lease, 0b1110)
    assert life.lease() is None
    life.release(lease, 0b0001, delay_ms=10)
    assert life.lease() is None
    life.wait(10)
    again = life.leased(4)
    assert (again.messages, again.deliveries) == (messages, [2, 1, 1, 1])
