"""What can be asked of a queue: counts, ages, bounds, the next messages, and why one waits."""

import doctest
import importlib
import pkgutil

import pytest

import penstock.core
from penstock.contract.messages import Tier, WaitReason
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.explain import explain
from penstock.core.queue.listing import BrowseFilter, browse
from penstock.core.queue.queries import bounds, counts, holders, oldest_sent_at_ms
from tests.core.queue.life import START_MS, Life


def reason(life: Life, message: int) -> tuple[WaitReason, int]:
    found = explain(life.state, message)
    assert found is not None
    return found.wait_reason, found.messages_ahead


def test_counts_are_by_tier_and_place() -> None:
    life = Life(QueueSettings(deliveries_max=1))
    life.send(3, Tier.HIGH)
    life.send(2, Tier.LOW, delay_ms=10)
    life.release(life.leased(1))
    life.leased(1)
    found = counts(life.state)
    assert (found.ready, found.leased, found.resting, found.spent) == ((0, 1, 0, 0, 0), 1, 2, 1)
    assert found.live == 5


def test_who_holds_a_message_is_known() -> None:
    life = Life()
    sent = life.send(4) + life.send(2, group=b"a") + life.send(3, Tier.LOW)
    life.release(life.leased(1), delay_ms=0)
    leases = [life.leased(4), life.leased(3)]
    expected = {message: (lease.id, row) for lease in leases for row, message in enumerate(lease.messages)}
    assert len(expected) == 7
    assert holders(life.state, sent) == expected
    assert holders(life.state, [*sent, 1 << 40, 7]) == expected
    life.ack(leases[0])
    assert holders(life.state, sent) == {message: held for message, held in expected.items() if held[0] == leases[1].id}


def test_the_oldest_message_of_a_tier_is_known() -> None:
    life = Life()
    life.send(1, Tier.HIGH)
    life.wait(10)
    life.send(1, Tier.LOW, group=b"a")
    life.send(1, Tier.HIGH)
    assert oldest_sent_at_ms(life.state) == [None, START_MS, None, START_MS + 10, None]


def test_the_bound_on_waiting_is_told_in_leases_and_in_time() -> None:
    life = Life()
    life.send(100, Tier.BACKGROUND)
    assert bounds(life.state, life.now_ms)[Tier.BACKGROUND] == (101 * 31 + 5, None)
    life.wait(1_000)
    life.leased(10)
    leases, ms = bounds(life.state, life.now_ms)[Tier.BACKGROUND]
    assert leases == 91 * 31 + 5
    assert ms is not None
    assert ms > 0


def test_peeking_shows_the_next_messages_and_leases_none() -> None:
    life = Life()
    normal, critical = life.send(2), life.send(1, Tier.CRITICAL, group=b"a")
    assert [seen.message for seen in browse(life.state, BrowseFilter(), most=10).seen] == [*critical, *normal]
    assert len(browse(life.state, BrowseFilter(), most=1).seen) == 1
    assert life.state.leased == 0


def test_a_waiting_message_knows_how_many_are_before_it() -> None:
    life = Life()
    sent = life.send(10)
    life.wait(1)
    (kept,) = life.send(1, ids=[b"a"])
    assert reason(life, sent[0]) == (WaitReason.NONE, 0)
    assert reason(life, sent[7]) == (WaitReason.BEHIND_OTHERS, 7)
    assert reason(life, kept) == (WaitReason.BEHIND_OTHERS, 10)


def test_an_explanation_estimates_when_a_message_starts() -> None:
    life = Life()
    sent = life.send(1_000)
    assert (found := explain(life.state, sent[500])) is not None
    assert found.start_estimate_ms is None
    for _ in range(10):
        life.wait(1_000)
        life.ack(life.leased(10))
    assert (found := explain(life.state, sent[600])) is not None
    assert found.start_estimate_ms is not None
    assert 30_000 <= found.start_estimate_ms - life.now_ms <= 70_000
    assert found.leases_bound == life.state.shares.bound(Tier.NORMAL, 500)


def test_a_message_that_is_not_ready_says_what_it_waits_for() -> None:
    life = Life(QueueSettings(deliveries_max=1))
    (delayed,) = life.send(1, delay_ms=50)
    (held,) = life.send(1, Tier.CRITICAL)
    lease = life.leased(lease_ms=70)
    assert (found := explain(life.state, delayed)) is not None
    assert (found.wait_reason, found.until_ms) == (WaitReason.DELAYED, START_MS + 50)
    assert (found := explain(life.state, held)) is not None
    assert (found.wait_reason, found.until_ms) == (WaitReason.IN_FLIGHT, START_MS + 70)
    life.release(lease)
    assert reason(life, held)[0] is WaitReason.AWAITING_BURIAL


def test_a_message_of_a_closed_group_names_the_reason() -> None:
    life = Life(QueueSettings(is_fifo=True))
    first, second, third = life.send(3, group=b"a")
    lease = life.leased(1)
    assert reason(life, third) == (WaitReason.GROUP_BUSY, 2)
    life.release(lease, delay_ms=100)
    assert reason(life, second) == (WaitReason.GROUP_BLOCKED, 1)
    life.wait(100)
    assert reason(life, first) == (WaitReason.NONE, 0)


def test_on_a_paused_queue_everything_waits_for_its_resumption() -> None:
    life = Life()
    (message,) = life.send(1)
    life.happen(life.queue.pause(now_ms=life.now_ms))
    assert reason(life, message)[0] is WaitReason.PAUSED


def test_a_settled_message_has_no_explanation_here() -> None:
    life = Life()
    (message,) = life.send(1)
    life.drain()
    assert explain(life.state, message) is None
    assert explain(life.state, 99 << 3 | 2) is None


MODULES = [module.name for module in pkgutil.walk_packages(penstock.core.__path__, "penstock.core.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
