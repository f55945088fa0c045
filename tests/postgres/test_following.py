"""Machines whose clocks are wrong: they follow the database, and the time of all others stays as it is."""

import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.runtime.memory import memory_runtime
from penstock.runtime.system import SystemClock
from penstock.store.postgres.leadership import TOLERATED_MS, FollowingClock, following_of
from penstock.store.postgres.multi_database import CommonClock
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema
from tests.simulation.clock import SimClock

HOURS_MS = 5 * 60 * 60 * 1_000
# How long the test may take on a busy machine.
PATIENCE_MS = 10 * 60 * 1_000


class Wrong:
    def __init__(self, by_ms: int) -> None:
        self.by_ms = by_ms

    def now_ms(self) -> int:
        return SystemClock().now_ms() + self.by_ms


@pytest.mark.real_time
@pytest.mark.parametrize("by_ms", [HOURS_MS, -HOURS_MS])
async def test_a_clock_that_is_hours_wrong_ends_no_lease_of_others(by_ms: int) -> None:
    settings, dice = empty_schema(), memory_runtime().dice
    right, wrong = FollowingClock(SystemClock()), FollowingClock(Wrong(by_ms))
    async with await PostgresStore.open(settings, clock=right, dice=dice, has_upkeep=False) as store:
        await store.create("orders", QueueSettings())
        await store.send("orders", Drafts(bodies=[b"a"]))
        assert await store.lease("orders", want=1, lease_ms=HOURS_MS // 2) is not None
        async with await PostgresStore.open(settings, clock=wrong, dice=dice, has_upkeep=False) as other:
            assert abs(other.now_ms() - SystemClock().now_ms()) < PATIENCE_MS
            assert await other.lease("orders", want=1) is None
            assert any("clock of this machine" in doubt for doubt in other.durability_warnings)
        await store._leadership.meet()
        assert abs(store.now_ms() - SystemClock().now_ms()) < PATIENCE_MS
        assert not any("clock" in doubt for doubt in store.durability_warnings)


def test_a_clock_that_is_about_right_is_left_as_it_is() -> None:
    own = SimClock()
    clock, now_ms = FollowingClock(own), own.now_ms()
    for theirs_ms, took_ms, shown_ms in (
        (now_ms + TOLERATED_MS, 0, now_ms),
        (now_ms - TOLERATED_MS, 0, now_ms),
        (now_ms + TOLERATED_MS + 1, 0, now_ms + TOLERATED_MS + 1),
        # The answer took long, so the difference is unknown.
        (now_ms + TOLERATED_MS + 1, 10_000, now_ms),
    ):
        clock.synchronize(theirs_ms, asked_ms=now_ms, heard_ms=now_ms + took_ms)
        assert clock.now_ms() == shown_ms
    assert clock.doubt is None


def test_a_clock_that_several_share_is_told_through_it() -> None:
    clock = FollowingClock(SimClock())
    assert following_of(CommonClock(clock)) is clock
    assert following_of(CommonClock(SimClock())) is None
