"""Timers come in the order of time, whatever the order they were set in."""

from bisect import insort
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.queue.timer_wheel import NEVER, Timer, Wheel


@given(
    timers=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 9)), max_size=60),
    steps=st.lists(st.integers(0, 60), max_size=12),
)
def test_a_wheel_gives_what_is_due_in_the_order_of_time(timers: list[tuple[int, int]], steps: list[int]) -> None:
    wheel, left, now = Wheel(), [], 0
    waiting = list(timers)
    for step in [*steps, 300]:
        for at_ms, item in waiting[:5]:
            wheel.add(now + at_ms, item)
            left.append((now + at_ms, item))
        waiting = waiting[5:]
        now += step
        due = sorted(timer for timer in left if timer[0] <= now)
        left = [timer for timer in left if timer[0] > now]
        assert wheel.pop_due(now) == [item for _, item in due]
        assert wheel.next_ms() == min((at_ms for at_ms, _ in left), default=NEVER)
        assert len(wheel) == len(left)
        assert sorted(wheel) == sorted(left)


@given(timers=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 9)), max_size=60), now=st.integers(0, 200))
def test_timers_set_at_once_are_due_as_those_set_one_by_one(timers: list[tuple[int, int]], now: int) -> None:
    at_once, one_by_one = Wheel(), Wheel()
    at_once.fill((at_ms for at_ms, _ in timers), (item for _, item in timers))
    for timer in timers:
        one_by_one.add(*timer)
    for wheel in (at_once, one_by_one):
        wheel.add(now, 10)
    assert len(at_once) == len(one_by_one)
    assert at_once.pop_due(now) == one_by_one.pop_due(now)
    assert at_once.pop_due(300) == one_by_one.pop_due(300)


@given(steps=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40)), min_size=1, max_size=8), begun=st.booleans())
def test_a_crowd_of_timers_in_one_bucket_comes_in_the_same_order(steps: list[tuple[int, int]], begun: bool) -> None:
    wheel = Wheel()
    # More than two runs of one bucket, in no order, and some of one instant.
    left = [(160 + number * 7 % 16, number * 7_919 % 10_007) for number in range(10_000)]
    for timer in left:
        wheel.add(*timer)
    if begun:
        loaded = Wheel()
        loaded.fill((at_ms for at_ms, _ in left), (item for _, item in left))
        wheel = loaded
    left.sort()
    for taken, more in steps:
        now_ms = left[taken * 100][0]
        assert len(list(wheel.due(now_ms))) == sum(1 for at_ms, _ in left if at_ms <= now_ms)
        for _ in range(taken * 100):
            assert (wheel.next_ms(), wheel.pop()) == left.pop(0)
            assert max(map(len, wheel.crowded())) < 2_000, "few are sorted at once"
        # Some of the bucket that is being taken, before and behind what is merged already.
        for at_ms, item in [(left[more * 50][0], 20_000 + more), (now_ms, 30_000)]:
            wheel.add(at_ms, item)
            insort(left, (at_ms, item))
        assert len(wheel) == len(left)
    assert sorted(wheel) == left
    assert wheel.pop_due(1_000) == [item for _, item in left]


def test_timers_that_no_longer_hold_are_dropped_when_they_are_the_greater_part() -> None:
    wheel = Wheel()
    for number in range(10_000):
        wheel.add(1_000_000 + number, number)
        wheel.thin(10, lambda timers: [timer for timer in timers if timer[1] % 1_000 == 0])
    assert len(wheel) < 6_000
    assert {0, 1_000, 9_000} <= set(wheel.pop_due(NEVER - 1))


def test_timers_that_no_longer_hold_are_dropped_some_with_each_call() -> None:
    wheel, seen = Wheel(), 0

    def is_odd(timers: Iterable[Timer]) -> list[Timer]:
        nonlocal seen
        found = list(timers)
        seen += len(found)
        return [timer for timer in found if timer[1] % 2]

    # Half of them at one instant, in many runs; the others each at its own.
    timers = [(160, number) for number in range(20_000)] + [(1_000 + 16 * number, number) for number in range(20_000)]
    for timer in timers:
        wheel.add(*timer)
    calls = []
    while wheel.count > len(timers) // 2:
        seen = 0
        wheel.thin(len(timers) // 4, is_odd)
        calls.append(seen)
    assert sum(calls) == len(timers)
    assert max(calls) < 5_000
    assert sorted(wheel) == [timer for timer in timers if timer[1] % 2]
    # Also when some are taken meanwhile.
    wheel.thin_at = 0
    for expected in sorted(timer for timer in timers if timer[1] % 2):
        wheel.thin(1, lambda found: [timer for timer in found if timer[1] % 2])
        assert (wheel.next_ms(), wheel.pop()) == expected
    assert (wheel.next_ms(), len(wheel)) == (NEVER, 0)


def test_the_next_timer_that_holds_is_found_behind_those_that_do_not() -> None:
    wheel = Wheel()
    for number in range(2_500):
        wheel.add(number, number)

    def is_last(timers: Iterable[Timer]) -> list[Timer]:
        return [timer for timer in timers if timer[1] == 2_499]

    # Only some are passed over at once; until then the answer is too early.
    assert [wheel.next_held_ms(is_last) for _ in range(4)] == [1_000, 2_000, 2_499, 2_499]
    assert wheel.pop_due(NEVER - 1) == [2_499]
    assert len(wheel) == 0
    assert wheel.next_held_ms(is_last) == NEVER
