"""One replica's rules: what is acknowledged, what is cut, who may lead."""

import doctest
import random
from dataclasses import replace

import pytest

from penstock.core import replica
from penstock.core.replica import (
    NO_EPOCH,
    EpochEnd,
    Epochs,
    Leadership,
    PartitionRecord,
    divergence,
    elect,
    epoch_end,
    fence,
    last_epoch,
    truncation_offset,
    with_isr,
)

LAG_MS = 100


def test_the_examples_in_the_docstrings_are_true() -> None:
    assert doctest.testmod(replica).failed == 0


# Truncation by epoch.


def test_an_empty_log_is_a_part_of_every_log() -> None:
    assert divergence([(3, 0)], 10, EpochEnd(NO_EPOCH, 0)) is None
    assert last_epoch([]) == NO_EPOCH


def test_an_epoch_without_records_that_the_leader_never_saw_is_a_divergence() -> None:
    assert divergence([(1, 0), (6, 10)], 20, EpochEnd(5, 10)) == EpochEnd(1, 10)
    assert truncation_offset([(1, 0), (5, 10)], 10, EpochEnd(1, 10)) == 10


def test_nothing_is_cut_that_the_leader_has_too() -> None:
    roll = random.Random(1)
    for _ in range(2_000):
        leader, follower = _two_histories(roll)
        shared = _shared_prefix(leader, follower)
        assert _settle(leader, follower) == follower[:shared]


def _two_histories(roll: random.Random) -> tuple[list[int], list[int]]:
    """Return two logs as the epoch of each record: a shared beginning, then leaders the other never followed."""
    leaders = [roll.choice("ab") for _ in range(8)]
    shared = [epoch for epoch in range(3) for _ in range(roll.randint(0, 3))]
    tails: dict[str, list[int]] = {"a": [], "b": []}
    for epoch, owner in enumerate(leaders, start=3):
        tails[owner] += [epoch] * roll.randint(0, 3)
    return shared + tails["a"], shared + tails["b"]


def _settle(leader: list[int], follower: list[int]) -> list[int]:
    for _ in range(20):
        epochs = _epochs(follower)
        parting = divergence(_epochs(leader), len(leader), EpochEnd(last_epoch(epochs), len(follower)))
        if parting is None:
            return follower
        follower = follower[: truncation_offset(epochs, len(follower), parting)]
    raise AssertionError("the follower asks for ever")


def _epochs(log: list[int]) -> Epochs:
    return [(epoch, log.index(epoch)) for epoch in sorted(set(log))]


def _shared_prefix(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


# What a leader knows.


def leadership(**changes: object) -> Leadership:
    start = Leadership(
        node=1,
        epoch=5,
        began_at_ms=0,
        start_offset=10,
        high_watermark=4,
        replicas=(1, 2, 3),
        min_isr=2,
        isr=frozenset({1, 2}),
    )
    return replace(start, **changes)  # type: ignore[arg-type]


def fetch(leader: Leadership, follower: int, offset: int, *, now_ms: int = 0, leader_offset: int = 20) -> None:
    leader.fetched(follower, offset, broker_epoch=7, leader_offset=leader_offset, now_ms=now_ms)


def test_the_high_watermark_is_what_every_in_sync_disk_has() -> None:
    leader = leadership()
    fetch(leader, 2, 15)
    fetch(leader, 3, 1)
    assert leader.advance(20)
    assert leader.high_watermark == 15
    assert not leader.advance(12)
    assert leader.high_watermark == 15


def test_a_follower_not_heard_in_this_epoch_holds_the_high_watermark() -> None:
    leader = leadership()
    assert not leader.advance(20)


def test_below_min_isr_nothing_is_acknowledged() -> None:
    leader = leadership(isr=frozenset({1}))
    assert not leader.advance(20)


def test_a_proposed_member_counts_before_it_is_granted() -> None:
    leader = leadership()
    fetch(leader, 2, 18)
    fetch(leader, 3, 15)
    leader.propose(frozenset({1, 2, 3}))
    leader.advance(20)
    assert leader.high_watermark == 15


def test_a_member_to_be_removed_counts_until_it_is() -> None:
    leader = leadership(min_isr=1)
    fetch(leader, 2, 11)
    leader.propose(frozenset({1}))
    leader.advance(20)
    assert leader.high_watermark == 11
    leader.settle(frozenset({1}))
    leader.advance(20)
    assert leader.high_watermark == 20


def test_a_new_leader_knows_all_acknowledgements_once_it_has_its_own_start_replicated() -> None:
    leader = leadership()
    assert not leader.is_caught_up
    fetch(leader, 2, 10)
    leader.advance(20)
    assert leader.is_caught_up


@pytest.mark.parametrize(("offset", "high_watermark", "joins"), [(12, 12, True), (11, 12, False), (9, 8, False)])
def test_who_joins_has_the_high_watermark_and_the_leaders_start(offset: int, high_watermark: int, joins: bool) -> None:
    leader = leadership(high_watermark=high_watermark)
    fetch(leader, 3, offset)
    assert (3 in leader.wanted_isr(now_ms=0, lag_ms_max=LAG_MS)) is joins


def test_who_has_not_asked_lately_does_not_join() -> None:
    leader = leadership()
    fetch(leader, 3, 20)
    assert 3 not in leader.wanted_isr(now_ms=LAG_MS + 1, lag_ms_max=LAG_MS)


def test_who_lags_leaves_and_the_leader_never_does() -> None:
    leader = leadership()
    assert leader.wanted_isr(now_ms=LAG_MS, lag_ms_max=LAG_MS) == {1, 2}
    assert leader.wanted_isr(now_ms=LAG_MS + 1, lag_ms_max=LAG_MS) == {1}


def test_a_follower_a_little_behind_a_busy_leader_stays() -> None:
    leader = leadership()
    for step in range(10):
        fetch(leader, 2, 10 + step, now_ms=step * 50, leader_offset=11 + step)
    assert 2 in leader.wanted_isr(now_ms=500, lag_ms_max=LAG_MS)


def test_a_follower_that_asks_often_and_never_gets_there_leaves() -> None:
    leader = leadership()
    for step in range(10):
        fetch(leader, 2, 10 + step, now_ms=step * 50, leader_offset=100)
    assert 2 not in leader.wanted_isr(now_ms=500, lag_ms_max=LAG_MS)


# Who may lead.


def record(**changes: object) -> PartitionRecord:
    start = PartitionRecord(
        replicas=(1, 2, 3), leader=1, leader_epoch=5, isr=frozenset({1, 2, 3}), elr=frozenset(), min_isr=2
    )
    return replace(start, **changes)  # type: ignore[arg-type]


def test_who_leaves_a_large_enough_isr_may_no_longer_be_elected() -> None:
    assert with_isr(record(), frozenset({1, 2})).elr == frozenset()


def test_who_leaves_an_isr_that_is_now_too_small_may_be_elected() -> None:
    assert with_isr(record(isr=frozenset({1, 2})), frozenset({1})).elr == {2}


def test_an_isr_that_is_large_enough_again_needs_no_others() -> None:
    assert with_isr(record(isr=frozenset({1}), elr=frozenset({2})), frozenset({1, 3})).elr == frozenset()


def test_a_leader_that_started_anew_is_deposed_with_a_new_epoch() -> None:
    fenced = fence(record(), 1, is_whole=True)
    assert (fenced.leader, fenced.leader_epoch, fenced.isr) == (None, 6, frozenset({2, 3}))


def test_a_whole_disk_may_be_elected_again_and_an_emptied_one_not() -> None:
    alone = record(isr=frozenset({1}))
    assert fence(alone, 1, is_whole=True).elr == {1}
    assert fence(alone, 1, is_whole=False).elr == frozenset()


def test_a_leader_that_is_there_stays() -> None:
    assert elect(record(), [1]) == record()


def test_an_in_sync_replica_is_elected_before_an_eligible_one() -> None:
    split = record(leader=None, isr=frozenset({3}), elr=frozenset({2}))
    assert elect(split, [2, 3]).leader == 3
    elected = elect(split, [2])
    assert (elected.leader, elected.leader_epoch, elected.isr, elected.elr) == (2, 6, frozenset({2, 3}), frozenset())


def test_a_log_whose_complete_replicas_are_gone_stays_offline() -> None:
    lost = record(leader=None, isr=frozenset({2}), elr=frozenset())
    assert elect(lost, [1, 3]) == lost


def test_the_end_of_an_unknown_epoch_is_where_the_first_known_one_begins() -> None:
    assert epoch_end([(4, 7)], 9, up_to=2) == EpochEnd(NO_EPOCH, 7)
