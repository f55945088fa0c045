"""Where the bodies are: which record of the journal, and which row of it.

Memory holds numbers, not bodies. A send leaves one entry for each lane it used,
whatever the number of its messages; a body is read back from the journal when it
is leased, or from the *hot* frames of the last sends, which are kept as they were
written.

    lane      numbers 0 ─────── 100 ────── 101 ──────────── 900
    entry            │ first 0   │ first 100│ first 101
                     │ record 7  │ record 9 │ record 12

A message that moved to another queue keeps its place in the journal: its new
number leads to the old record. A message that was copied forward gets a new one.

An entry reaches to the next one. What it says of settled numbers may be wrong, and is
never asked for.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from penstock.contract.messages import Tier
from penstock.core.queue.events import Arrived, Buried, Copied, Redriven, Sent
from penstock.core.queue.message import Run
from penstock.frame import Blobs

LANES = len(Tier)
# Fewer entries than these are not worth forgetting one by one.
_SPARSE_MIN = 256

# First numbers, records, rows and sizes of a lane, as bytes.
Columns: TypeAlias = tuple[bytes, bytes, bytes, bytes]


class Span(NamedTuple):
    """Bodies of one record: ``length`` of those it has of a tier, from its ``nth`` on."""

    record: int
    tier: int
    nth: int
    length: int


class Stored:
    """The frame of one send, in memory."""

    __slots__ = ("tiers", "bodies", "attributes", "_rows")

    def __init__(self, tiers: bytes, bodies: Blobs, attributes: Blobs | None) -> None:
        self.tiers = tiers
        self.bodies = bodies
        self.attributes = attributes
        # The rows of each tier that was asked for: counting through a large mixed send for each body is slow.
        self._rows: dict[int, array[int]] = {}

    @property
    def size_bytes(self) -> int:
        return stored_bytes(self.bodies, self.attributes)

    def rows(self, tier: int, nth: int, count: int) -> Sequence[int]:
        """Return the rows of ``count`` messages of a tier, from its ``nth`` on."""
        if self.tiers.count(tier) == len(self.tiers):
            return range(nth, nth + count)
        found = self._rows.get(tier)
        if found is None:
            found = self._rows[tier] = array("I", [row for row, other in enumerate(self.tiers) if other == tier])
        return found[nth : nth + count]


def stored_bytes(bodies: Blobs, attributes: Blobs | None) -> int:
    return len(bodies.data) + (0 if attributes is None else len(attributes.data))


class Lane:
    """Entries in the order of their first numbers."""

    __slots__ = ("firsts", "records", "rows", "sizes", "next")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.records = array("Q")
        # Which row of the record the first number is: how many of a tier come before it there, and the tier.
        self.rows = array("I")
        # How large a body of that record is, on average.
        self.sizes = array("I")
        self.next = 0

    def append(self, count: int, record: int, row: int, mean_bytes: int) -> None:
        """The next ``count`` numbers are in a record."""
        self.firsts.append(self.next)
        self.records.append(record)
        self.rows.append(row)
        self.sizes.append(mean_bytes)
        self.next += count

    def has(self, number: int) -> bool:
        """Whether a number was not pruned."""
        return bool(self.firsts) and self.firsts[0] <= number

    def span(self, number: int, end: int) -> Span:
        """Where a message is, and as many of those that follow it, below ``end``, as are beside it."""
        entry = bisect_right(self.firsts, number) - 1
        assert entry >= 0, "this number was pruned, so it is settled"
        after = self.firsts[entry + 1] if entry + 1 < len(self.firsts) else self.next
        row = self.rows[entry]
        return Span(self.records[entry], row & 7, (row >> 3) + number - self.firsts[entry], min(end, after) - number)

    def mean_bytes(self, number: int) -> int:
        """How large the bodies are that are in one record with that of a message."""
        return self.sizes[bisect_right(self.firsts, number) - 1]

    def size_bytes(self, first: int, end: int) -> int:
        """How large some bodies are, by the means of the records they are in."""
        total = 0
        while first < end:
            entry = bisect_right(self.firsts, first) - 1
            after = self.firsts[entry + 1] if entry + 1 < len(self.firsts) else self.next
            after = min(end, after)
            total += self.sizes[entry] * (after - first)
            first = after
        return total

    def spans(self, first: int, end: int) -> Iterator[Span]:
        while first < end:
            span = self.span(first, end)
            yield span
            first += span.length

    def copy(self, runs: Sequence[tuple[int, int, int]], record: int, tier: int, mean_bytes: int) -> None:
        """Some runs, rising, are in a record now: each a first number, an end, and its row there."""
        if not self.firsts:
            return
        begin = max(0, bisect_right(self.firsts, runs[0][0]) - 1)
        stop = bisect_left(self.firsts, runs[-1][1])
        at = self.firsts[begin]
        after = self.firsts[stop] if stop < len(self.firsts) else self.next
        firsts, records, rows, sizes = array("Q"), array("Q"), array("I"), array("I")
        for first, end, nth in [*runs, (after, after, 0)]:
            # What lies between two runs stays where it is.
            for span in self.spans(at, first):
                firsts.append(at)
                records.append(span.record)
                rows.append(span.nth << 3 | span.tier)
                sizes.append(self.mean_bytes(at))
                at += span.length
            # Numbers below the first entry were pruned: they are settled.
            if at < end:
                firsts.append(at)
                records.append(record)
                rows.append(nth + at - first << 3 | tier)
                sizes.append(mean_bytes)
                at = end
        self.firsts[begin:stop] = firsts
        self.records[begin:stop] = records
        self.rows[begin:stop] = rows
        self.sizes[begin:stop] = sizes

    def is_sparse(self, runs: Sequence[tuple[int, int]]) -> bool:
        """Whether most entries are of settled numbers only, if these are the live ones."""
        needed = sum(bisect_left(self.firsts, end) - bisect_right(self.firsts, first) + 1 for first, end in runs)
        return len(self.firsts) > 2 * needed + _SPARSE_MIN

    def compact(self, runs: Sequence[tuple[int, int]]) -> None:
        """Forget where every number was that is not in one of the rising ``runs``."""
        firsts, records, rows, sizes = array("Q"), array("Q"), array("I"), array("I")
        for first, end in runs:
            number = first
            for span in self.spans(first, end):
                firsts.append(number)
                records.append(span.record)
                sizes.append(self.mean_bytes(number))
                rows.append(span.nth << 3 | span.tier)
                number += span.length
        self.firsts, self.records, self.rows, self.sizes = firsts, records, rows, sizes

    def replace_below(self, number: int, columns: "Columns") -> None:
        """Take over entries for all numbers below one at which a send began."""
        old = bisect_left(self.firsts, number)
        self.firsts[:old], self.records[:old] = array("Q", columns[0]), array("Q", columns[1])
        self.rows[:old], self.sizes[:old] = array("I", columns[2]), array("I", columns[3])

    def columns(self) -> "Columns":
        return self.firsts.tobytes(), self.records.tobytes(), self.rows.tobytes(), self.sizes.tobytes()

    def prune(self, lowest: int) -> None:
        """Forget where numbers below ``lowest`` were: none of them is live."""
        keep = bisect_right(self.firsts, lowest) - 1 if lowest < self.next else len(self.firsts)
        if keep > 0:
            del self.firsts[:keep], self.records[:keep], self.rows[:keep], self.sizes[:keep]


class BodyIndex:
    """Where the bodies of one queue are."""

    __slots__ = ("lanes",)

    def __init__(self) -> None:
        self.lanes = [Lane() for _ in range(LANES)]

    def sent(self, event: Sent | Arrived, record: int, size_bytes: int) -> None:
        tiers = event.tiers
        if not tiers:
            return
        mean_bytes = size_bytes // len(tiers)
        tier = tiers[0]
        count = tiers.count(tier)
        if count == len(tiers):
            self.lanes[tier].append(count, record, tier, mean_bytes)
            return
        for tier in set(tiers):
            self.lanes[tier].append(tiers.count(tier), record, tier, mean_bytes)

    def arrived(self, tier: int, span: Span, mean_bytes: int) -> None:
        """Take a message that moved here; it gets the next number of its lane."""
        self.lanes[tier].append(1, span.record, span.nth << 3 | span.tier, mean_bytes)

    def copied(self, event: Copied, record: int, size_bytes: int) -> None:
        mean_bytes = size_bytes // max(1, sum(run.length for run in event.runs))
        runs: list[list[tuple[int, int, int]]] = [[] for _ in range(LANES)]
        nths = [0] * LANES
        for lane, first, length in event.runs:
            runs[lane].append((first, first + length, nths[lane]))
            nths[lane] += length
        for tier, lane_runs in enumerate(runs):
            if lane_runs:
                self.lanes[tier].copy(lane_runs, record, tier, mean_bytes)

    def spans(self, runs: Sequence[Run]) -> list[Span]:
        """Return where the bodies of some runs are, in their order."""
        spans: list[Span] = []
        for lane, first, length in runs:
            spans += self.lanes[lane].spans(first, first + length)
        return spans

    def span(self, lane: int, number: int) -> Span:
        return self.lanes[lane].span(number, number + 1)

    def size_bytes(self, runs: Sequence[Run]) -> int:
        return sum(self.lanes[lane].size_bytes(first, first + length) for lane, first, length in runs)


def move(event: Buried | Redriven, source: BodyIndex, target: BodyIndex) -> Iterator[Run]:
    """Let the messages of a move be found under their new numbers, and yield these."""
    for tier, runs in groupby(zip(event.runs, event.tiers, strict=True), key=itemgetter(1)):
        first = target.lanes[tier].next
        for run, _ in runs:
            lane = source.lanes[run.lane]
            target.arrived(tier, lane.span(run.first, run.first + 1), lane.mean_bytes(run.first))
        yield Run(tier, first, target.lanes[tier].next - first)


class BodyCache:
    """The frames of the last sends, up to a size."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._frames: OrderedDict[int, Stored] = OrderedDict()

    def get(self, record: int) -> Stored | None:
        return self._frames.get(record)

    def put(self, record: int, stored: Stored) -> None:
        if record in self._frames:
            # Two readers missed it at the same time, and it must not be counted twice.
            return
        self._frames[record] = stored
        self._bytes += stored.size_bytes
        while self._bytes > self._bytes_max and len(self._frames) > 1:
            _, oldest = self._frames.popitem(last=False)
            self._bytes -= oldest.size_bytes


def pick(column: Blobs | None, rows: Sequence[int]) -> Sequence[memoryview]:
    """Return some rows of a column; empty bodies where there is no column."""
    if column is None:
        return [memoryview(b"")] * len(rows)
    if isinstance(rows, range):
        assert rows.step == 1
        return column.part(rows.start, rows.stop)
    return [column[row] for row in rows]
