"""Timers by the million: the cost of a tick depends only on what is due.

    far     bucket ▸ items      one array for each 16 ms, found through a heap of buckets
    near    (at, item) …        the first bucket, sorted, the earliest last

A timer is a number and an instant; eight bytes while it is far. Nothing is ever
taken out early. The owner of the timers knows by looking at its own state
whether one still holds (a lease that was acked, a deadline that moved), and
`thin` drops those that do not when they have become the greater part.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, TypeAlias

NEVER = 2**62

# When, and what.
Timer: TypeAlias = tuple[int, int]

_BUCKET_BITS = 4
_THIN_FROM = 4_096
# Looking for a timer that holds, no more than these are passed over at once.
_PASSED_MAX = 1_000


class Wheel:
    """Timers in the order of their time. Two arrays hold a far bucket: when, and what."""

    __slots__ = ("_far", "_heap", "_near", "_near_bucket", "count", "thin_at")

    def __init__(self) -> None:
        self._far: dict[int, tuple[array[int], array[int]]] = {}
        self._heap: list[int] = []
        # Sorted by falling time, so that the next is at the end.
        self._near: list[tuple[int, int]] = []
        self._near_bucket = -1
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

    def _add_first(self, at_ms: int, item: int) -> None:
        bucket = at_ms >> _BUCKET_BITS
        if bucket <= self._near_bucket:
            # Negative keys, because the list falls.
            insort(self._near, (at_ms, item), key=_falling)
            return
        self._far[bucket] = (array("q", (at_ms,)), array("Q", (item,)))
        heappush(self._heap, bucket)

    def fill(self, times: Iterable[int], items: Iterable[int]) -> None:
        """Add many timers at once to a wheel that has none: there may be millions, and many of one instant."""
        assert not self.count
        timers = sorted(zip(times, items, strict=True))
        at_ms, what = array("q", map(itemgetter(0), timers)), array("Q", map(itemgetter(1), timers))
        start = 0
        while start < len(timers):
            bucket = at_ms[start] >> _BUCKET_BITS
            end = bisect_left(at_ms, bucket + 1 << _BUCKET_BITS, start)
            self._far[bucket] = (at_ms[start:end], what[start:end])
            # Rising, and so a heap.
            self._heap.append(bucket)
            start = end
        self.count = len(timers)

    def next_ms(self) -> int:
        """When the next timer is due, whether it still holds or not."""
        if not self._near:
            if not self._heap:
                return NEVER
            self._near_bucket = heappop(self._heap)
            times, items = self._far.pop(self._near_bucket)
            self._near = sorted(zip(times, items, strict=True), reverse=True)
        return self._near[-1][0]

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
        # The heap has the first bucket at its top, and no bucket comes before the one above it.
        places = [0]
        while places:
            place = places.pop()
            if place < len(self._heap) and self._heap[place] <= now_ms >> _BUCKET_BITS:
                times, items = self._far[self._heap[place]]
                yield from (item for at_ms, item in zip(times, items, strict=True) if at_ms <= now_ms)
                places += (2 * place + 1, 2 * place + 2)

    def thin(self, live: int, held: Callable[[Iterable[Timer]], Iterable[Timer]]) -> None:
        """Drop timers that no longer hold, once there are more of them than of the ``live`` ones."""
        if self.count < self.thin_at:
            return
        if self.count > 2 * live:
            self.keep(held)
        self.thin_at = max(_THIN_FROM, 2 * self.count)

    def keep(self, held: Callable[[Iterable[Timer]], Iterable[Timer]]) -> None:
        """Keep only those timers that ``held`` chooses."""
        kept = list(held(self))
        self._far, self._heap, self._near, self._near_bucket, self.count = {}, [], [], -1, 0
        for at_ms, item in kept:
            self.add(at_ms, item)

    def crowded(self) -> tuple[dict[int, Any], list[int], list[tuple[int, int]]]:
        """What has an entry for each timer or bucket, for code that takes a wheel apart."""
        return self._far, self._heap, self._near

    def __iter__(self) -> Iterator[tuple[int, int]]:
        yield from self._near
        for times, items in self._far.values():
            yield from zip(times, items, strict=True)


def _falling(timer: tuple[int, int]) -> tuple[int, int]:
    return (-timer[0], -timer[1])
