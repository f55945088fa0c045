"""Urgency changes: messages age into more urgent tiers, and people escalate them."""

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import MINUTE_MS, QueueSettings
from tests.core.queue.life import Life

QUICK = QueueSettings(aging_ms=(0, 0, 0, 100, 200), is_strict=True)


def test_a_message_that_waits_long_moves_up_by_one_tier() -> None:
    life = Life()
    (low,) = life.send(1, Tier.LOW)
    (background,) = life.send(1, Tier.BACKGROUND)
    life.wait(30 * MINUTE_MS - 1)
    assert (life.tier(low), life.tier(background)) == (Tier.LOW, Tier.BACKGROUND)
    life.wait(1)
    assert (life.tier(low), life.tier(background)) == (Tier.NORMAL, Tier.BACKGROUND)
    life.wait(30 * MINUTE_MS)
    assert life.tier(background) == Tier.LOW
    life.wait(30 * MINUTE_MS)
    assert life.tier(background) == Tier.NORMAL
    life.wait(1_000 * MINUTE_MS)
    assert (life.tier(low), life.tier(background)) == (Tier.NORMAL, Tier.NORMAL)


def test_aging_promotes_in_order() -> None:
    life = Life(QUICK)
    sent: list[int] = []
    for _ in range(10):
        sent += life.send(1, Tier.BACKGROUND)
        life.wait(10)
    life.wait(5_000)
    assert life.drain() == sent


def test_runs_age_without_becoming_rows() -> None:
    life = Life(QUICK)
    life.send(1_000, Tier.BACKGROUND)
    life.wait(1_000)
    assert life.state.ready == [0, 0, 1_000, 0, 0]
    assert len(life.state.rows) == 0


def test_what_ages_joins_its_new_tier_behind_those_already_there() -> None:
    life = Life(QUICK)
    old = life.send(2, Tier.LOW)
    life.wait(50)
    normal = life.send(2, Tier.NORMAL)
    life.wait(60)
    late = life.send(1, Tier.NORMAL)
    assert life.drain() == [*normal, *old, *late]


def test_a_message_ages_while_it_is_leased_and_returns_to_the_tier_it_has_come_to() -> None:
    life = Life(QUICK)
    (plain,) = life.send(1, Tier.LOW)
    (grouped,) = life.send(1, Tier.LOW, group=b"a")
    life.leased(2, lease_ms=500)
    life.wait(500)
    assert (life.tier(plain), life.tier(grouped)) == (Tier.NORMAL, Tier.NORMAL)


def test_an_escalated_message_is_served_at_its_new_tier() -> None:
    life = Life(QUICK)
    sent = life.send(100, Tier.NORMAL)
    life.escalate([sent[50]], Tier.CRITICAL)
    lease = life.leased(1)
    assert (lease.messages, lease.tiers) == ([sent[50]], [Tier.CRITICAL])
    assert life.drain(10) == [message for message in sent if message != sent[50]]


def test_an_escalation_is_kept_with_who_and_why() -> None:
    life = Life()
    sent = life.send(3)
    life.escalate(sent[:2], Tier.HIGH, until_ms=life.now_ms + 10)
    (audit,) = life.state.audit
    assert (audit.actor, audit.reason, audit.tier) == ("ada", "a customer waits", Tier.HIGH)
    assert sum(run.length for run in audit.runs) == 2


def test_an_escalation_may_end_by_itself() -> None:
    life = Life()
    (message,) = life.send(1)
    life.escalate([message], Tier.CRITICAL, until_ms=life.now_ms + 1_000)
    assert life.tier(message) == Tier.CRITICAL
    life.wait(1_000)
    assert life.tier(message) == Tier.NORMAL


def test_a_second_escalation_replaces_the_first_and_falls_back_to_where_it_all_began() -> None:
    life = Life()
    (message,) = life.send(1)
    life.escalate([message], Tier.HIGH, until_ms=life.now_ms + 1_000)
    life.escalate([message], Tier.CRITICAL, until_ms=life.now_ms + 5_000)
    life.wait(1_000)
    assert life.tier(message) == Tier.CRITICAL
    life.wait(4_000)
    assert life.tier(message) == Tier.NORMAL


def test_an_escalated_message_that_fails_keeps_the_tier_it_was_given() -> None:
    life = Life()
    (message,) = life.send(1)
    life.escalate([message], Tier.CRITICAL)
    life.release(life.leased(), delay_ms=5)
    life.wait(5)
    assert life.leased().tiers == [Tier.CRITICAL]


def test_only_what_is_pending_can_be_escalated() -> None:
    life = Life()
    held, waiting = life.send(2)
    life.leased(1)
    assert not life.escalate([held, 12345 << 3 | 2], Tier.CRITICAL)
    assert life.escalate([held, waiting], Tier.CRITICAL)
    assert (life.tier(held), life.tier(waiting)) == (Tier.NORMAL, Tier.CRITICAL)


def test_a_delayed_message_can_be_escalated_before_its_time() -> None:
    life = Life()
    (message,) = life.send(1, delay_ms=100)
    life.escalate([message], Tier.CRITICAL)
    life.wait(100)
    assert life.leased().tiers == [Tier.CRITICAL]


def test_new_thresholds_never_take_back_what_has_aged() -> None:
    life = Life(QUICK)
    (plain,) = life.send(1, Tier.LOW)
    life.wait(100)
    slow = QueueSettings(aging_ms=(0, 0, 0, 0, 0), is_strict=True)
    life.happen(life.queue.change(slow, now_ms=life.now_ms))
    assert life.tier(plain) == Tier.NORMAL
    assert life.leased().tiers == [Tier.NORMAL]


def test_a_lease_that_lapses_in_parts_is_counted_once_in_the_tier_it_has_aged_to() -> None:
    life = Life(QueueSettings(aging_ms=(0, 0, 0, 30, 0)))
    life.send(10, Tier.LOW)
    lease = life.leased(10, lease_ms=10)
    life.extend(lease, 50, mask=0b11111_00000)
    life.wait(60)
    assert life.state.ready == [0, 0, 10, 0, 0]
