"""Settings are written down whole, read back the same, and refused where they are wrong; a queue obeys them."""

import pytest

from penstock.contract.limits import BODY_BYTES_MAX, LABELS_CHARACTERS_MAX, RETRY_AFTER_MS_MIN, RETRY_AFTER_MS_UNKNOWN
from penstock.contract.messages import Tier
from penstock.contract.queue_settings import BadSettings, DedupScope, History, QueueSettings
from penstock.core.queue.message import BadDraft, Drafts
from penstock.core.queue.queue import Queue, QueueFull
from tests.core.queue.life import Life


def test_settings_come_back_the_same() -> None:
    settings = QueueSettings(
        is_fifo=True, lease_ms=5, dedup_scope=DedupScope.LIVE, weights=(5, 4, 3, 2, 1), history=History.FULL
    )
    assert QueueSettings.from_json(settings.to_json()) == settings


def test_a_setting_that_is_not_given_has_its_default() -> None:
    assert QueueSettings.from_json("{}") == QueueSettings()


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[]",
        '{"lease_seconds": 5}',
        '{"lease_ms": "5"}',
        '{"lease_ms": true}',
        '{"lease_ms": 0}',
        '{"weights": [1, 2]}',
        '{"weights": [1, 2, 3, 4, 0]}',
        '{"weights": [1, 2, 3, 4, 5.5]}',
        '{"dedup_scope": "always"}',
        '{"history": "some"}',
        '{"reserve_percent": [0, 0, 0, 0, 100]}',
    ],
)
def test_a_wrong_setting_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadSettings):
        QueueSettings.from_json(text)


def test_a_queue_stays_fifo_or_stays_standard() -> None:
    with pytest.raises(BadSettings):
        Life().queue.change(QueueSettings(is_fifo=True), now_ms=Life().now_ms)


def test_a_paused_queue_accepts_sends_and_acks_and_leases_nothing() -> None:
    life = Life()
    life.send(2)
    lease = life.leased(1)
    life.happen(life.queue.pause(now_ms=life.now_ms))
    life.send(1)
    assert life.lease() is None
    assert life.ack(lease)
    assert life.queue.pause(now_ms=life.now_ms) is None
    life.happen(life.queue.resume(now_ms=life.now_ms))
    assert len(life.drain()) == 2


def test_by_default_every_tier_may_fill_a_queue() -> None:
    for tier in Tier:
        life = Life(QueueSettings(size_max=100))
        for _ in range(100):
            life.send(1, tier)
        with pytest.raises(QueueFull):
            life.send(1, tier)


def test_a_full_queue_with_reserves_refuses_background_before_critical() -> None:
    life = Life(QueueSettings(size_max=100, reserve_percent=(0, 2, 5, 10, 20)))
    life.send(80, Tier.CRITICAL)
    with pytest.raises(QueueFull):
        life.send(1, Tier.BACKGROUND)
    life.send(10, Tier.LOW)
    with pytest.raises(QueueFull):
        life.send(1, Tier.LOW)
    life.send(10, Tier.CRITICAL)
    with pytest.raises(QueueFull):
        life.send(1, Tier.CRITICAL)
    assert life.state.live == 100


def test_a_batch_that_does_not_fit_is_refused_whole() -> None:
    life = Life(QueueSettings(size_max=10))
    life.send(2, Tier.CRITICAL)
    with pytest.raises(QueueFull):
        life.send(9, Tier.CRITICAL)
    assert life.state.live == 2


def test_a_batch_that_can_never_fit_is_not_asked_to_try_again() -> None:
    life = Life(QueueSettings(size_max=10))
    with pytest.raises(BadDraft, match="never has room for more than 10"):
        life.send(11, Tier.CRITICAL)
    assert life.state.live == 0


def test_the_smallest_queue_takes_a_message_of_any_tier() -> None:
    for tier in Tier:
        assert Life(QueueSettings(size_max=1)).send(1, tier)


def test_a_refusal_says_when_to_try_again_from_the_rate_of_draining() -> None:
    life = Life(QueueSettings(size_max=1_000))
    life.send(1_000, Tier.CRITICAL)
    with pytest.raises(QueueFull) as stuck:
        life.send(1, Tier.CRITICAL)
    assert stuck.value.retry_after_ms == RETRY_AFTER_MS_UNKNOWN <= 5_000
    for _ in range(10):
        life.wait(1_000)
        life.ack(life.leased(50))
    life.send(500, Tier.CRITICAL)
    with pytest.raises(QueueFull) as moving:
        life.send(200, Tier.CRITICAL)
    assert RETRY_AFTER_MS_MIN <= moving.value.retry_after_ms <= 6_000


def test_a_duplicate_is_answered_even_by_a_full_queue() -> None:
    life = Life(QueueSettings(size_max=1))
    (first,) = life.send(1, Tier.CRITICAL, ids=[b"a"])
    assert life.send(1, Tier.CRITICAL, ids=[b"a"]) == [first]


@pytest.mark.parametrize(
    "drafts",
    [
        Drafts(bodies=[b""], tiers=b"\x05"),
        Drafts(bodies=[b""], groups=[b"g" * 129]),
        Drafts(bodies=[b""], dedup_ids=[b"i" * 129]),
        Drafts(bodies=[b""], visible_at_ms=[2**62]),
        Drafts(bodies=[b""], deliveries_max=[60_000]),
        Drafts(bodies=[bytes(BODY_BYTES_MAX + 1)]),
        Drafts(bodies=[]),
        Drafts(bodies=[], tiers=b""),
    ],
)
def test_a_draft_that_breaks_a_limit_is_refused(drafts: Drafts) -> None:
    with pytest.raises(BadDraft):
        Queue(1).send(drafts, now_ms=1)


def test_labels_of_a_front_end_come_back_the_same_and_are_bounded() -> None:
    labels = '{"tags":{"team":"\\u00e9quipe"}}'
    assert QueueSettings.from_json(QueueSettings(labels=labels).to_json()).labels == labels
    QueueSettings(labels="x" * LABELS_CHARACTERS_MAX)
    with pytest.raises(BadSettings, match="labels has 65537 characters"):
        QueueSettings(labels="x" * (LABELS_CHARACTERS_MAX + 1))
