"""Messages nothing has happened to: runs of numbers, in lanes.

    lane BACKGROUND   numbers  0 ······ 900 ········ 5000 ──────────── 9000 = next
                               settled  │ LOW shelf  │ BACKGROUND shelf │
                                        └── edge of the aged ──┘

A lane is one queue and the tier at which its messages were sent; its numbers are
consecutive. Waiting numbers lie on *shelves*, one for each tier the lane has come
to: a message ages by its time of sending alone, so the aged are always the lowest
numbers, and aging moves the front of one shelf to the end of the next.

A run on a shelf is ``[first, end, deliveries, lease, first_leased_ms, served_tier]``.
All but its numbers are 0, unless a lease of it has lapsed: then it is back in its
place, with its deliveries counted, the lease it came from, when it was leased for
the first time, and the tier it was served at last.

Times of sending are kept as marks, one for each millisecond in which anything was
sent. They are forgotten when no message of their time is left in the lane.

Laws of the file
----------------
1. A shelf is in the order of its numbers, and no number is on two shelves. Runs on it
   that could be one are one, so a shelf looks the same however it came about.
2. Whether a message is leased, a row or settled is not known here: a lane knows
   what waits on its shelves, and which blocks of numbers it still has to date.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from penstock.core.queue.timer_wheel import NEVER

# first, end, deliveries, lease, first_leased_ms, served_tier
Stretch: TypeAlias = list[int]
# One time for all, or marks: the first number of each and its time, both ascending. A number's time is that of the
# last mark at or below it.
SentTimes: TypeAlias = "int | tuple[array[int], array[int]]"

_BLOCK_BITS = 10
_MARKS_MIN = 1_024
_HEAD_MAX = 64


class Shelf:
    """Waiting runs of one lane and one tier, in the order of their numbers."""

    __slots__ = ("runs", "head", "count")

    def __init__(self) -> None:
        self.runs: list[Stretch] = []
        # Runs before this one are gone; the list is shortened now and then, not at each step.
        self.head = 0
        self.count = 0

    def __iter__(self) -> Iterator[Stretch]:
        runs = self.runs
        return (runs[index] for index in range(self.head, len(runs)))

    def append(self, first: int, end: int) -> None:
        """Add numbers above all others that nothing has happened to."""
        self.count += end - first
        runs = self.runs
        if runs:
            last = runs[-1]
            if last[1] == first and last[2] == 0 and last[3] == 0 and len(runs) > self.head:
                last[1] = end
                return
        runs.append([first, end, 0, 0, 0, 0])

    def put(self, stretch: Stretch) -> None:
        """Put a run back in its place, joined with its neighbours where they are alike."""
        self.count += stretch[1] - stretch[0]
        runs, index = self.runs, len(self.runs)
        if index > self.head and runs[-1][0] > stretch[0]:
            index = bisect_left(runs, stretch[0], lo=self.head, key=_first)
        if index > self.head and _follows(runs[index - 1], stretch):
            index -= 1
            runs[index][1] = stretch[1]
        elif index == self.head > 0:
            index = self.head = self.head - 1
            runs[index] = stretch
        else:
            runs.insert(index, stretch)
        if index + 1 < len(runs) and _follows(runs[index], runs[index + 1]):
            runs[index][1] = runs[index + 1][1]
            del runs[index + 1]

    def take(self, first: int, end: int) -> list[Stretch]:
        """Remove numbers that are all here, and return them as they lay."""
        self.count -= end - first
        runs = self.runs
        front = runs[self.head]
        if front[0] == first and front[1] > end:
            front[0] = end
            return [[first, end, *front[2:]]]
        index = self.head if front[0] == first else bisect_right(runs, first, lo=self.head, key=_first) - 1
        taken: list[Stretch] = []
        while first < end:
            stretch = runs[index]
            upto = min(end, stretch[1])
            taken.append([first, upto, *stretch[2:]])
            index = self._cut(index, first, upto)
            first = upto
        return taken

    def _cut(self, index: int, first: int, end: int) -> int:
        """Cut numbers out of one run and return the index of the run after them."""
        runs = self.runs
        stretch = runs[index]
        if stretch[0] < first:
            rest = [end, *stretch[1:]]
            stretch[1] = first
            if rest[0] < rest[1]:
                runs.insert(index + 1, rest)
            return index + 1
        if end < stretch[1]:
            stretch[0] = end
            return index
        return self._drop(index)

    def _drop(self, index: int) -> int:
        if index != self.head:
            del self.runs[index]
            return index
        self.drop_front()
        return self.head

    def drop_front(self) -> None:
        """The first run is gone."""
        runs = self.runs
        self.head += 1
        if self.head == len(runs):
            runs.clear()
            self.head = 0
        elif self.head > _HEAD_MAX and 2 * self.head > len(runs):
            del runs[: self.head]
            self.head = 0

    def take_below(self, number: int) -> list[Stretch]:
        """Remove and return everything below ``number``."""
        taken: list[Stretch] = []
        while len(self.runs) > self.head and self.runs[self.head][0] < number:
            stretch = self.runs[self.head]
            taken += self.take(stretch[0], min(stretch[1], number))
        return taken

    def holds(self, number: int) -> bool:
        index = bisect_right(self.runs, number, lo=self.head, key=_first) - 1
        return index >= self.head and number < self.runs[index][1]

    def stretch_of(self, number: int) -> Stretch:
        """The run that a number on this shelf is in."""
        return self.runs[bisect_right(self.runs, number, lo=self.head, key=_first) - 1]

    def before(self, number: int) -> int:
        """How many numbers on this shelf are lower."""
        return sum(min(stretch[1], number) - stretch[0] for stretch in self if stretch[0] < number)


class Lane:
    """The numbers of one queue and tier: what is waiting, when it was sent, how far it has aged."""

    __slots__ = ("tier", "next", "live", "shelves", "edges", "_starts", "_times", "_blocks", "_trim_at")

    def __init__(self, tier: int) -> None:
        self.tier = tier
        self.next = 0
        # Messages not settled, whether waiting, leased or rows: `next` less the settled.
        self.live = 0
        self.shelves = [Shelf() for _ in range(tier + 1)]
        # Numbers below edges[t] had aged into tier t, or further, when the thresholds were last changed.
        self.edges = [0] * tier
        self._starts = array("Q")
        self._times = array("q")
        # How many undated-by-themselves messages each block of numbers has.
        self._blocks: dict[int, int] = {}
        self._trim_at = _MARKS_MIN

    def number(self, count: int, now_ms: int) -> int:
        """Give out the next ``count`` numbers and return the first."""
        first = self.next
        self.next = first + count
        self.live += count
        if not self._times or self._times[-1] != now_ms:
            self._starts.append(first)
            self._times.append(now_ms)
            if len(self._starts) > self._trim_at:
                self._trim()
        return first

    def extend(self, count: int, now_ms: int) -> None:
        """Give out the next ``count`` numbers and let them wait: `number`, `date` and `append` in one."""
        first = self.next
        end = first + count
        block = first >> _BLOCK_BITS
        if (end - 1) >> _BLOCK_BITS == block in self._blocks and self._times[-1] == now_ms:
            self.next = end
            self.live += count
            self._blocks[block] += count
        else:
            self.number(count, now_ms)
            self.date(first, end)
        shelf = self.shelves[self.tier]
        if shelf.count:
            last = shelf.runs[-1]
            if last[1] == first and last[2] == 0 == last[3]:
                last[1] = end
                shelf.count += count
                return
        shelf.append(first, end)

    def date(self, first: int, end: int) -> None:
        """These numbers will be asked for their time of sending, until `undate`."""
        block = first >> _BLOCK_BITS
        blocks = self._blocks
        if (end - 1) >> _BLOCK_BITS == block:
            blocks[block] = blocks.get(block, 0) + end - first
            return
        while first < end:
            upto = min(end, (block + 1) << _BLOCK_BITS)
            blocks[block] = blocks.get(block, 0) + upto - first
            first, block = upto, block + 1

    def undate(self, first: int, end: int) -> None:
        """These numbers are settled, or rows now, which know their time themselves."""
        blocks = self._blocks
        while first < end:
            block = first >> _BLOCK_BITS
            upto = min(end, (block + 1) << _BLOCK_BITS)
            left = blocks[block] - upto + first
            if left:
                blocks[block] = left
            else:
                del blocks[block]
            first = upto

    def settle(self, first: int, end: int) -> None:
        """Numbers of runs are done with."""
        count = end - first
        self.live -= count
        block = first >> _BLOCK_BITS
        blocks = self._blocks
        if (end - 1) >> _BLOCK_BITS == block and blocks[block] > count:
            blocks[block] -= count
        else:
            self.undate(first, end)

    def sent_at_ms(self, number: int) -> int:
        return self._times[bisect_right(self._starts, number) - 1]

    def sent_times(self, first: int, end: int) -> SentTimes:
        """When these numbers were sent: one time for all, or the marks they span."""
        starts, times = self._starts, self._times
        low = bisect_right(starts, first) - 1
        if low + 1 == len(starts) or starts[low + 1] >= end:
            return times[low]
        high = bisect_left(starts, end, lo=low)
        return starts[low:high], times[low:high]

    def may_have(self, number: int) -> bool:
        """Whether a number can be in a run or a lease still; if not, it is a row or settled."""
        return number >> _BLOCK_BITS in self._blocks

    def first_sent_after(self, at_ms: int) -> int:
        """The lowest number sent after an instant."""
        index = bisect_right(self._times, at_ms)
        return self._starts[index] if index < len(self._starts) else self.next

    def tier_at(self, number: int, now_ms: int, aging_ms: Sequence[int]) -> int:
        """The tier a message of this lane has come to by its age alone."""
        tier = self.tier
        waited_ms = now_ms - self.sent_at_ms(number)
        while tier and aging_ms[tier] and waited_ms >= aging_ms[tier]:
            waited_ms -= aging_ms[tier]
            tier -= 1
        while tier and number < self.edges[tier - 1]:
            tier -= 1
        return tier

    def since_ms(self, number: int, tier: int, aging_ms: Sequence[int]) -> int:
        """When a message of this lane joined its tier."""
        return self.sent_at_ms(number) + sum(aging_ms[tier + 1 : self.tier + 1])

    def put_back(self, stretch: Stretch, now_ms: int, aging_ms: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Return a run to its shelves, and yield how many went to which tier."""
        first, end, *past = stretch
        while first < end:
            tier = self.tier_at(first, now_ms, aging_ms)
            upto = end
            if self.tier_at(end - 1, now_ms, aging_ms) != tier:
                upto = (
                    first
                    + 1
                    + bisect_left(
                        range(first + 1, end), True, key=lambda number: self.tier_at(number, now_ms, aging_ms) != tier
                    )
                )
            self.shelves[tier].put([first, upto, *past])
            yield tier, upto - first
            first = upto

    def age(self, now_ms: int, aging_ms: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Move what is old enough up, and yield how many came from which tier to the next."""
        waited_ms = 0
        for tier in range(self.tier, 0, -1):
            if not aging_ms[tier]:
                return
            waited_ms += aging_ms[tier]
            for stretch in self.shelves[tier].take_below(self.first_sent_after(now_ms - waited_ms)):
                # Counted first: on its new shelf it may be joined with the run after it.
                count = stretch[1] - stretch[0]
                self.shelves[tier - 1].put(stretch)
                yield tier, count

    def keep_aged(self, now_ms: int, aging_ms: Sequence[int]) -> None:
        """Let what has aged by these thresholds stay where it is, whatever thresholds come."""
        waited_ms = 0
        for tier in range(self.tier, 0, -1):
            if not aging_ms[tier]:
                return
            waited_ms += aging_ms[tier]
            self.edges[tier - 1] = max(self.edges[tier - 1], self.first_sent_after(now_ms - waited_ms))

    def ages_at_ms(self, aging_ms: Sequence[int]) -> int:
        """When the next waiting message moves up."""
        due = NEVER
        waited_ms = 0
        for tier in range(self.tier, 0, -1):
            if not aging_ms[tier]:
                break
            waited_ms += aging_ms[tier]
            shelf = self.shelves[tier]
            if shelf.count:
                due = min(due, self.sent_at_ms(shelf.runs[shelf.head][0]) + waited_ms)
        return due

    def clear(self) -> None:
        """Settle everything."""
        self.live = 0
        self.shelves = [Shelf() for _ in range(self.tier + 1)]
        self._blocks = {}

    def _trim(self) -> None:
        """Forget the marks of blocks in which nothing is left to date, wherever they are: one old message keeps one."""
        starts, times = array("Q"), array("q")
        kept = 0
        for first, end in _stretches(sorted(self._blocks)):
            low = max(kept, bisect_right(self._starts, first << _BLOCK_BITS) - 1)
            kept = max(kept, bisect_left(self._starts, end << _BLOCK_BITS))
            starts += self._starts[low:kept]
            times += self._times[low:kept]
        if kept < len(self._starts):
            # The newest is for numbers that are just being given out.
            starts.append(self._starts[-1])
            times.append(self._times[-1])
        self._starts, self._times = starts, times
        self._trim_at = max(_MARKS_MIN, 2 * len(starts))


def _stretches(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Rising numbers as the first of each run and its end.

    >>> list(_stretches([3, 4, 7]))
    [(3, 5), (7, 8)]
    """
    first = end = -1
    for number in numbers:
        if number != end:
            if first >= 0:
                yield first, end
            first = number
        end = number + 1
    if first >= 0:
        yield first, end


def _follows(stretch: Stretch, after: Stretch) -> bool:
    """Whether two runs are one."""
    return stretch[1] == after[0] and stretch[2:] == after[2:]


def _first(stretch: Stretch) -> int:
    return stretch[0]
