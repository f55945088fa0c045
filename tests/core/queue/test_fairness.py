"""Tiers share by weight: exactly, without bursts, and within the published bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.fairness import Shares
from tests.core.queue.life import Life

DEFAULT = (16, 8, 4, 2, 1)
NO_AGING = QueueSettings(aging_ms=(0, 0, 0, 0, 0))
ALL = (1 << 100) - 1


@pytest.mark.parametrize("want", [1, 7, 10, 100])
def test_saturated_tiers_share_eight_to_four_to_two_to_one_to_a_half(want: int) -> None:
    life = Life(NO_AGING)
    for tier in Tier:
        life.send(9_000, tier)
    counts = [0] * 5
    left = 15_500
    while left:
        lease = life.leased(min(want, left))
        for served in lease.tiers:
            counts[served] += 1
        left -= len(lease.messages)
        life.ack(lease)
    for count, share in zip(counts, (8_000, 4_000, 2_000, 1_000, 500), strict=True):
        assert abs(count - share) <= share // 100


def test_a_tier_that_was_empty_does_not_burst_when_it_returns() -> None:
    life = Life(NO_AGING)
    life.send(5_000, Tier.BACKGROUND)
    life.send(5_000, Tier.NORMAL)
    for _ in range(1_000):
        life.ack(life.leased(1))
    life.send(5_000, Tier.CRITICAL)
    tiers = [life.leased(1).tiers[0] for _ in range(210)]
    # 16 : 4 : 1, from the first message on.
    assert 158 <= tiers.count(Tier.CRITICAL) <= 162
    assert 38 <= tiers.count(Tier.NORMAL) <= 42
    assert 8 <= tiers.count(Tier.BACKGROUND) <= 12


def test_an_idle_tier_costs_the_others_nothing() -> None:
    life = Life(NO_AGING)
    life.send(100, Tier.BACKGROUND)
    assert len(life.leased(100).messages) == 100


@pytest.mark.parametrize("want", [1, 3, 10])
def test_under_a_flood_of_critical_every_background_message_is_served_within_the_bound(want: int) -> None:
    life = Life(NO_AGING)
    life.send(500, Tier.CRITICAL)
    for _ in range(7):
        life.ack(life.leased(want))
    waiting = life.send(5, Tier.BACKGROUND)
    bounds = {message: life.state.shares.bound(Tier.BACKGROUND, ahead) for ahead, message in enumerate(waiting)}
    leased = 0
    while bounds:
        life.send(want, Tier.CRITICAL)
        lease = life.leased(want)
        for message in lease.messages:
            leased += 1
            assert leased <= bounds.pop(message, leased)
        assert all(leased < bound for bound in bounds.values())
        life.ack(lease)


def test_a_strict_queue_serves_the_most_urgent_tier_alone() -> None:
    life = Life(QueueSettings(is_strict=True))
    low, critical = life.send(2, Tier.LOW), life.send(2, Tier.CRITICAL)
    assert life.leased(3).messages == [*critical, low[0]]


def test_a_batch_is_shared_as_if_it_were_served_one_by_one() -> None:
    one_by_one, at_once = Shares(DEFAULT), Shares(DEFAULT)
    ready = [500] * 5
    counts = [0] * 5
    for _ in range(400):
        (tier,) = [tier for tier, quota in enumerate(one_by_one.quotas(1, ready)) if quota]
        one_by_one.served(tier, 1)
        one_by_one.settle_clock([tier])
        counts[tier] += 1
    assert at_once.quotas(400, ready) == counts


@given(
    weights=st.lists(st.integers(1, 40), min_size=5, max_size=5),
    ready=st.lists(st.integers(0, 60), min_size=5, max_size=5),
    wants=st.lists(st.integers(1, 80), min_size=1, max_size=6),
)
def test_quotas_in_closed_form_are_those_of_the_definition(
    weights: list[int], ready: list[int], wants: list[int]
) -> None:
    closed, defined = Shares(weights), Shares(weights)
    for want in wants:
        quotas = closed.quotas(want, ready)
        counted = [0] * 5
        for _ in range(min(want, sum(ready))):
            starts = [max(finish, defined.clock) for finish in defined.finish]
            tier = min((t for t in range(5) if counted[t] < ready[t]), key=lambda t: (starts[t], t))
            defined.served(tier, 1)
            defined.settle_clock([tier])
            counted[tier] += 1
        assert quotas == counted
        for tier, quota in enumerate(quotas):
            if quota:
                closed.served(tier, quota)
        if any(quotas):
            closed.settle_clock([tier for tier, quota in enumerate(quotas) if quota])
        assert closed.finish == defined.finish
        assert closed.clock == defined.clock


@given(
    weights=st.lists(st.integers(1, 12), min_size=5, max_size=5),
    leases=st.lists(
        st.tuples(st.integers(1, 24), st.lists(st.sampled_from([0, 1, 2, 5, 99]), min_size=5, max_size=5)),
        min_size=1,
        max_size=40,
    ),
)
def test_a_share_that_is_looked_up_is_the_one_that_would_be_dealt(
    weights: list[int], leases: list[tuple[int, list[int]]]
) -> None:
    shares = Shares(weights)
    for want, ready in leases:
        dealt = [0] * 5
        starts = [max(finish, shares.clock) for finish in shares.finish]
        shares._deal(dealt, starts, min(want, sum(ready)), ready)
        for _ in range(2):
            assert shares.quotas(want, ready) == dealt
        tiers = [tier for tier in range(5) if dealt[tier]]
        shares.served_together(tiers, [dealt[tier] for tier in tiers])


def test_changing_the_weights_takes_effect_at_once() -> None:
    life = Life(NO_AGING)
    for tier in Tier:
        life.send(1_000, tier)
    life.ack(life.leased(100))
    equal = QueueSettings(aging_ms=(0,) * 5, weights=(1, 1, 1, 1, 1))
    life.happen(life.queue.change(equal, now_ms=life.now_ms))
    tiers = life.leased(100).tiers
    assert [tiers.count(tier) for tier in range(5)] == [20] * 5
