"""Fair queues: a group that takes more than its share is served when nothing quiet waits."""

from dataclasses import replace

import pytest

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import BadSettings, QueueSettings
from penstock.core.queue.explain import explain
from penstock.core.queue.message_groups import RECENT_MS
from penstock.core.queue.queries import noisy
from penstock.core.queue.queue import Queue
from penstock.core.queue.snapshot import freeze, thaw
from tests.core.queue.life import Life

# By what is held alone.
BY_HELD = QueueSettings(noisy_time_percent=100, deliveries_max=0)
BY_TIME = QueueSettings(noisy_percent=100, deliveries_max=0)


def test_a_group_that_holds_more_than_a_tenth_is_served_after_quiet_ones() -> None:
    life = Life(BY_HELD)
    loud = life.send(100, group=b"loud")
    assert life.leased(30).messages == loud[:30]
    quiet = life.send(5, group=b"quiet")
    assert life.leased(3).messages == quiet[:3]
    assert life.leased(10).messages == [*quiet[3:], *loud[30:38]], "the noisy one has what is left"


def test_a_group_that_holds_fewer_than_thirty_is_not_noisy() -> None:
    life = Life(BY_HELD)
    loud = life.send(100, group=b"loud")
    life.leased(29)
    quiet = life.send(5, group=b"quiet")
    assert set(life.leased(4).messages) == {*loud[29:31], *quiet[:2]}


def test_a_group_that_holds_a_tenth_and_no_more_is_not_noisy() -> None:
    life = Life(BY_HELD)
    life.send(270)
    life.leased(270)
    loud = life.send(100, group=b"loud")
    life.leased(30)
    quiet = life.send(5, group=b"quiet")
    assert set(life.leased(2).messages) == {loud[30], quiet[0]}
    assert noisy(life.state) == (1, 69, 31), "one more is more than a tenth"


def test_a_noisy_group_is_served_at_once_when_nothing_quiet_waits() -> None:
    life = Life(BY_HELD)
    loud = life.send(100, group=b"loud")
    life.leased(40)
    assert life.leased(60).messages == loud[40:]


def test_of_two_noisy_groups_the_one_that_holds_less_goes_first() -> None:
    life = Life(BY_HELD)
    life.send(60, group=b"loud")
    life.leased(60)
    life.send(40, group=b"louder")
    life.leased(40)
    louder, loud = life.send(30, group=b"louder"), life.send(30, group=b"loud")
    assert life.leased(20).messages == louder[:20]
    assert set(life.leased(4).messages) == {*louder[20:22], *loud[:2]}, "then both, in turns"


def test_a_group_is_quiet_again_when_it_holds_less() -> None:
    life = Life(BY_HELD)
    loud = life.send(100, group=b"loud")
    lease = life.leased(40)
    quiet = life.send(9, group=b"quiet")
    assert noisy(life.state) == (1, 60, 40)
    life.ack(lease, (1 << 20) - 1)
    assert noisy(life.state) == (0, 0, 0)
    assert set(life.leased(2).messages) == {loud[40], quiet[0]}


def test_what_lapses_or_is_released_is_held_no_longer() -> None:
    for is_released in (True, False):
        life = Life(BY_HELD)
        life.send(50, group=b"loud")
        lease = life.leased(50, lease_ms=100)
        assert noisy(life.state).groups == 1
        if is_released:
            life.release(lease, delay_ms=0)
        else:
            life.wait(100)
        assert noisy(life.state).groups == 0


def test_two_messages_of_a_noisy_group_may_be_out_at_once() -> None:
    life = Life(BY_HELD)
    life.send(50, group=b"loud")
    life.leased(40)
    assert [len(life.leased(1).messages) for _ in range(3)] == [1, 1, 1]


def test_messages_without_a_group_are_never_noisy() -> None:
    life = Life(BY_HELD)
    plain = life.send(100)
    life.leased(60)
    quiet = life.send(5, group=b"quiet")
    assert set(life.leased(2).messages) == {plain[60], quiet[0]}


def test_messages_without_a_group_go_before_noisy_groups() -> None:
    life = Life(BY_HELD)
    loud = life.send(100, group=b"loud")
    life.leased(50)
    plain = life.send(3)
    quiet = life.send(2, group=b"quiet")
    found = life.leased(7).messages
    assert set(found[:5]) == {*plain, *quiet}
    assert found[5:] == loud[50:52]


def test_few_messages_that_take_long_make_a_group_noisy() -> None:
    life = Life(BY_TIME)
    slow = life.send(5, group=b"slow")
    for _ in range(2):
        lease = life.leased(1, lease_ms=600_000)
        life.wait(1_000)
        life.ack(lease)
    quick = life.send(1, group=b"quick")
    assert noisy(life.state) == (1, 3, 0)
    assert life.leased(3).messages == [*quick, *slow[2:4]]


def test_time_that_was_taken_long_ago_is_forgotten_by_half_each_minute() -> None:
    life = Life(BY_TIME)
    life.send(30, group=b"slow")
    slow = life.leased(1, lease_ms=600_000)
    life.wait(16_000)
    life.ack(slow)
    life.wait(RECENT_MS)
    for turn in range(20):
        # Others take eight seconds, which is as much as is left of the sixteen.
        name = b"quick-%d" % turn
        life.send(2, group=name)
    others = [life.leased(1, lease_ms=600_000) for _ in range(20)]
    assert noisy(life.state).groups == 1
    life.wait(400)
    for lease in others:
        life.ack(lease)
    tenants = life.state.groups.tenants
    assert tenants.total_ms == 8_000 + 20 * 400
    assert noisy(life.state).groups == 1
    life.wait(4 * RECENT_MS)
    assert noisy(life.state).groups == 1, "a share stays while nothing is leased"
    busy = life.leased(20, lease_ms=600_000)
    life.wait(1_000)
    life.ack(busy)
    assert noisy(life.state).groups == 0


def test_a_noisy_group_is_not_starved_by_many_quiet_ones() -> None:
    """Forty quiet groups always have more than the workers take; the noisy one gets its turn all the same."""
    life = Life(QueueSettings(deliveries_max=0))
    loud = set(life.send(200, group=b"loud"))
    leases = [life.leased(40)]
    for number in range(40):
        life.send(100, group=b"quiet-%d" % number)
    served = 0
    for _ in range(60):
        leases.append(life.leased(20, lease_ms=600_000))
        served += len(loud.intersection(leases[-1].messages))
        life.wait(5_000)
        if len(leases) > 2:
            life.ack(leases.pop(0))
    assert served >= 10


def test_a_fifo_queue_has_no_noisy_groups() -> None:
    life = Life(QueueSettings(is_fifo=True, deliveries_max=0))
    life.send(50, group=b"loud")
    life.leased(40)
    assert noisy(life.state) == (0, 0, 0)


def test_each_tier_looks_for_quiet_groups_of_its_own() -> None:
    life = Life(BY_HELD)
    loud = life.send(100, Tier.CRITICAL, group=b"loud")
    life.leased(40)
    quiet = life.send(2, Tier.LOW, group=b"quiet")
    found = life.leased(9)
    assert set(quiet) & set(found.messages)
    assert set(loud) & set(found.messages), "a quiet group of another tier does not hold it up"


def test_thresholds_that_are_changed_count_at_once() -> None:
    life = Life(BY_HELD)
    life.send(100, group=b"loud")
    life.leased(10)
    assert noisy(life.state).groups == 0
    life.happen(life.queue.change(replace(BY_HELD, noisy_leased_min=5), now_ms=life.now_ms))
    assert noisy(life.state).groups == 1
    life.happen(life.queue.change(replace(BY_HELD, noisy_percent=100), now_ms=life.now_ms))
    assert noisy(life.state).groups == 0


def test_who_is_noisy_is_known_after_a_replay_and_after_a_snapshot() -> None:
    life = Life(QueueSettings(deliveries_max=0))
    life.send(100, group=b"loud")
    slow = life.leased(40)
    life.wait(500)
    life.ack(slow, 1)
    life.send(3, group=b"quiet")
    replayed = Queue.replay(life.history)
    replayed.advance(life.now_ms)
    assert freeze(replayed.state) == freeze(life.state)
    thawed = thaw(freeze(life.state))
    assert noisy(thawed) == noisy(life.state) == (1, 60, 39)
    assert thawed.groups.tenants.total_ms == 500


def test_a_message_of_a_noisy_group_is_told_that_quiet_ones_go_first() -> None:
    life = Life(BY_HELD)
    loud = life.send(100, group=b"loud")
    life.leased(40)
    before = explain(life.state, loud[40])
    life.send(7, group=b"quiet")
    after = explain(life.state, loud[40])
    assert before is not None
    assert after is not None
    assert (before.messages_ahead, after.messages_ahead) == (0, 7)


def test_a_group_that_comes_back_begins_again() -> None:
    life = Life(BY_TIME)
    life.send(1, group=b"slow")
    life.send(9, group=b"other")
    slow = life.leased(1, lease_ms=600_000)
    life.wait(1_000)
    life.ack(slow)
    life.send(1, group=b"slow")
    assert noisy(life.state).groups == 0


@pytest.mark.parametrize("wrong", [{"noisy_percent": 0}, {"noisy_time_percent": 101}, {"noisy_leased_min": 0}])
def test_thresholds_out_of_bounds_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadSettings):
        QueueSettings(**wrong)  # type: ignore[arg-type]
