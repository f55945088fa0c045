"""Timers by the million: the cost of a tick depends only on what is due.

    far     bucket ▸ items      one array for each 16 ms, found through a heap of buckets
            bucket ▸ runs       and sorted arrays of 4,096, where a bucket has more than that
    near    (at, item) …        the first bucket, sorted, the earliest last; or the first of its runs, merged

A timer is a number and an instant; eight bytes while it is far. Nothing is ever
taken out early. The owner of the timers knows by looking at its own state
whether one still holds (a lease that was acked, a deadline that moved), and
`thin` drops those that do not when they have become the greater part, some with each call.

A million timers of one instant are sorted 4,096 at a time while they are added, and merged
1,024 at a time while they are taken: no call takes longer the more of them there are.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, islice
from operator import itemgetter
from typing import Any, TypeAlias

NEVER = 2**62

# When, and what.
Timer: TypeAlias = tuple[int, int]

_BUCKET_BITS = 4
_THIN_FROM = 4_096
# Looking for a timer that holds, no more than these are passed over at once.
_PASSED_MAX = 1_000
# So many timers of a far bucket are sorted at once, and so many of its runs are merged at once.
_RUN = 4_096
_MERGED = 1_024
# So many are sorted at once where many are added at once, in a thread.
_FILLED = 16_384

# `thin` looks at so many with each call, or at one bucket or run.
_THINNED = 500

# When, and what, sorted by falling time.
_Run: TypeAlias = "tuple[array[int], array[int]]"
_NO_RUN: _Run = (array("q"), array("Q"))


class Wheel:
    """Timers in the order of their time. Two arrays hold a far bucket: when, and what."""

    __slots__ = (
        "_far",
        "_far_runs",
        "_heap",
        "_near",
        "_near_bucket",
        "_near_runs",
        "_firsts",
        "_unthinned",
        "count",
        "thin_at",
    )

    def __init__(self) -> None:
        self._far: dict[int, tuple[array[int], array[int]]] = {}
        self._far_runs: dict[int, list[_Run]] = {}
        self._heap: list[int] = []
        # Sorted by falling time, so that the next is at the end.
        self._near: list[tuple[int, int]] = []
        self._near_bucket = -1
        # What of the first bucket comes after `_near`: runs, and a heap of the first timer of each with its place.
        self._near_runs: list[_Run] = []
        self._firsts: list[tuple[int, int, int]] = []
        # Far buckets, and runs of them, that `thin` has not looked at yet.
        self._unthinned: list[int | _Run] = []
        self.count = 0
        self.thin_at = _THIN_FROM

    def __len__(self) -> int:
        return self.count

    def add(self, at_ms: int, item: int) -> None:
        self.count += 1
        far = self._far.get(at_ms >> _BUCKET_BITS)
        if far is None:
            self._add_first(at_ms, item)
        else:
            far[0].append(at_ms)
            far[1].append(item)
            if len(far[0]) == _RUN:
                self._far_runs.setdefault(at_ms >> _BUCKET_BITS, []).append(_run_of(*far))
                self._far[at_ms >> _BUCKET_BITS] = (array("q"), array("Q"))

    def _add_first(self, at_ms: int, item: int) -> None:
        bucket = at_ms >> _BUCKET_BITS
        if bucket > self._near_bucket:
            self._far[bucket] = (array("q", (at_ms,)), array("Q", (item,)))
            heappush(self._heap, bucket)
        elif self._firsts and (not self._near or (at_ms, item) > self._near[0]):
            # It comes after some that are not merged yet: a run of its own, with nothing behind it.
            heappush(self._firsts, (at_ms, item, 0))
        else:
            # Negative keys, because the list falls.
            insort(self._near, (at_ms, item), key=_falling)

    def fill(self, times: Iterable[int], items: Iterable[int]) -> None:
        """Add many timers to a wheel that has none: there may be millions, and many of one instant.

        They are sorted a part at a time, for a call of C keeps all threads waiting.
        """
        assert not self.count
        timers = zip(times, items, strict=True)
        while piece := sorted(islice(timers, _FILLED)):
            self.count += len(piece)
            at_ms, what = array("q", map(itemgetter(0), piece)), array("Q", map(itemgetter(1), piece))
            start = 0
            while start < len(piece):
                bucket = at_ms[start] >> _BUCKET_BITS
                end = bisect_left(at_ms, bucket + 1 << _BUCKET_BITS, start)
                self._extend(bucket, at_ms[start:end], what[start:end])
                start = end

    def _extend(self, bucket: int, times: "array[int]", items: "array[int]") -> None:
        far = self._far.get(bucket)
        if far is None:
            heappush(self._heap, bucket)
            far = self._far[bucket] = (array("q"), array("Q"))
        far[0].extend(times)
        far[1].extend(items)
        if len(far[0]) >= _RUN:
            self._far_runs.setdefault(bucket, []).append(_run_of(*far))
            self._far[bucket] = (array("q"), array("Q"))

    def next_ms(self) -> int:
        """When the next timer is due, whether it still holds or not."""
        # A bucket may be empty: none of its timers held.
        while not self._near:
            if self._firsts:
                self._merge()
            elif not self._begin_bucket():
                return NEVER
        return self._near[-1][0]

    def _begin_bucket(self) -> bool:
        """Let the first far bucket be near, and return whether there is one."""
        if not self._heap:
            return False
        bucket = self._near_bucket = heappop(self._heap)
        far, runs = self._far.pop(bucket), self._far_runs.pop(bucket, None)
        if runs is None:
            self._near = sorted(zip(*far, strict=True), reverse=True)
        else:
            # The first run is the empty one.
            self._near_runs = [(array("q"), array("Q")), *runs, *([_run_of(*far)] if far[0] else ())]
            self._firsts = [
                (times.pop(), items.pop(), place) for place, (times, items) in enumerate(self._near_runs) if times
            ]
            heapify(self._firsts)
        return True

    def _merge(self) -> None:
        """Take the first timers out of the runs of the first bucket."""
        firsts = self._firsts
        if len(firsts) == 1 and self._near_runs[firsts[0][2]][0]:
            # One run, as after `fill` if there are not many: nothing is to be merged.
            at_ms, item, place = firsts.pop()
            times, items = self._near_runs[place]
            self._near = [*zip(times[-_MERGED:], items[-_MERGED:], strict=True), (at_ms, item)]
            del times[-_MERGED:], items[-_MERGED:]
            if times:
                firsts.append((times.pop(), items.pop(), place))
            return
        merged: list[Timer] = []
        while firsts and len(merged) < _MERGED:
            at_ms, item, place = firsts[0]
            merged.append((at_ms, item))
            times, items = self._near_runs[place]
            if times:
                heapreplace(firsts, (times.pop(), items.pop(), place))
            else:
                heappop(firsts)
        merged.reverse()
        self._near = merged

    def next_held_ms(self, held: Callable[[Iterable[Timer]], Iterable[Timer]]) -> int:
        """When the next timer is due that still holds; sooner, if there are many before it that do not.

        Those are dropped on the way.
        """
        at_ms = self.next_ms()
        for _ in range(_PASSED_MAX):
            if at_ms == NEVER or any(True for _ in held(self._near[-1:])):
                break
            self._near.pop()
            self.count -= 1
            at_ms = self.next_ms()
        return at_ms

    def drop_to_held(self, held: Callable[[Iterable[Timer]], Iterable[Timer]]) -> int:
        """When the next timer is due that still holds; all before it are dropped."""
        while (at_ms := self.next_ms()) != NEVER and not any(True for _ in held(self._near[-1:])):
            self.pop()
        return at_ms

    def pop_due(self, now_ms: int) -> list[int]:
        """Take out every timer due by ``now_ms``, in the order of time."""
        due: list[int] = []
        while self.next_ms() <= now_ms:
            near = self._near
            while near and near[-1][0] <= now_ms:
                due.append(near.pop()[1])
        self.count -= len(due)
        return due

    def pop(self) -> int:
        """Take out the next timer; `next_ms` has just said when it is due."""
        self.count -= 1
        return self._near.pop()[1]

    def due(self, now_ms: int) -> Iterator[int]:
        """Yield every timer due by ``now_ms``, in no order, and leave it where it is."""
        if self.next_ms() > now_ms:
            return
        for at_ms, item in reversed(self._near):
            if at_ms > now_ms:
                return
            yield item
        yield from (item for at_ms, item, _ in self._firsts if at_ms <= now_ms)
        yield from _due_in(self._near_runs, now_ms)
        # The heap has the first bucket at its top, and no bucket comes before the one above it.
        places = [0]
        while places:
            place = places.pop()
            if place < len(self._heap) and self._heap[place] <= now_ms >> _BUCKET_BITS:
                times, items = self._far[self._heap[place]]
                yield from (item for at_ms, item in zip(times, items, strict=True) if at_ms <= now_ms)
                yield from _due_in(self._far_runs.get(self._heap[place], ()), now_ms)
                places += (2 * place + 1, 2 * place + 2)

    def thin(self, live: int, held: Callable[[Iterable[Timer]], Iterable[Timer]]) -> None:
        """Drop timers that no longer hold, some with each call, when they are more than the ``live`` ones."""
        if self.count < self.thin_at:
            return
        if not self._unthinned:
            if self.count <= 2 * live:
                self.thin_at = max(_THIN_FROM, 2 * self.count)
                return
            self._unthinned = list(self._far)
        left = _THINNED
        while self._unthinned and left > 0:
            left -= self._thin_one(held)
        if not self._unthinned:
            self.thin_at = max(_THIN_FROM, 2 * self.count)
            self._far = {bucket: far for bucket, far in self._far.items() if far[0] or bucket in self._far_runs}
            self._heap = list(self._far)
            heapify(self._heap)

    def _thin_one(self, held: Callable[[Iterable[Timer]], Iterable[Timer]]) -> int:
        """Drop timers of a far bucket, or of a run, and return how many were looked at."""
        which = self._unthinned.pop()
        if isinstance(which, int):
            # A run is what it is, also when its bucket has become the first one.
            self._unthinned += self._far_runs.get(which, ())
            which = self._far.get(which, _NO_RUN)
        times, items = which
        looked_at = len(times)
        kept = list(held(zip(times, items, strict=True)))
        if len(kept) < looked_at:
            self.count -= looked_at - len(kept)
            times[:], items[:] = array("q", map(itemgetter(0), kept)), array("Q", map(itemgetter(1), kept))
        return looked_at + 1

    def crowded(self) -> tuple[dict[int, Any], dict[int, Any], list[int], list[Any], list[Any]]:
        """What has an entry for each timer or bucket, for code that takes a wheel apart."""
        return self._far, self._far_runs, self._heap, self._near, self._firsts

    def __iter__(self) -> Iterator[tuple[int, int]]:
        yield from self._near
        yield from ((at_ms, item) for at_ms, item, _ in self._firsts)
        for times, items in chain(self._far.values(), self._near_runs, *self._far_runs.values()):
            yield from zip(times, items, strict=True)


def _falling(timer: tuple[int, int]) -> tuple[int, int]:
    return (-timer[0], -timer[1])


def _run_of(times: "array[int]", items: "array[int]") -> _Run:
    timers = sorted(zip(times, items, strict=True), reverse=True)
    return array("q", map(itemgetter(0), timers)), array("Q", map(itemgetter(1), timers))


def _due_in(runs: Iterable[_Run], now_ms: int) -> Iterator[int]:
    for times, items in runs:
        for at_ms, item in zip(reversed(times), reversed(items), strict=True):
            if at_ms > now_ms:
                break
            yield item
