"""Where the bodies are: which record of the journal, and which row of it.

Memory holds numbers, not bodies. A send leaves one entry for each lane it used,
whatever the number of its messages; a body is read back from the journal when it
is leased, or from the *hot* frames of the last sends, which are kept as they were
written.

    lane      numbers 0 ─────── 100 ────── 101 ──────────── 900
    entry            │ first 0   │ first 100│ first 101
                     │ record 7  │ record 9 │ record 12

A message that moved to another queue keeps its place in the journal: its new
number leads to the old record.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.events import Buried, Redriven, Sent
from penstock.core.message import Tier
from penstock.log.frame import Blobs

LANES = len(Tier)


class Place(NamedTuple):
    """A record of the journal, and how many messages of the same tier come before this one there."""

    record: int
    row: int


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
        return len(self.bodies.data) + (0 if self.attributes is None else len(self.attributes.data))

    def rows(self, tier: int, nth: int, count: int) -> Sequence[int]:
        """Return the rows of ``count`` messages of a tier, from its ``nth`` on."""
        if self.tiers.count(tier) == len(self.tiers):
            return range(nth, nth + count)
        found = self._rows.get(tier)
        if found is None:
            found = self._rows[tier] = array("I", [row for row, other in enumerate(self.tiers) if other == tier])
        return found[nth : nth + count]


class Lane:
    """For each send to a lane, its first number and its record, in order."""

    __slots__ = ("firsts", "records")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.records = array("Q")


class Places:
    """Where the bodies of one queue are."""

    def __init__(self) -> None:
        self._lanes = [Lane() for _ in range(LANES)]
        self._next = [0] * LANES
        # Numbers of messages that came from another queue: each has a place of its own.
        self._moved: dict[int, tuple[int, Place]] = {}

    def sent(self, event: Sent, record: int) -> None:
        tiers = event.tiers
        for tier in set(tiers):
            lane = self._lanes[tier]
            lane.firsts.append(self._next[tier])
            lane.records.append(record)
            self._next[tier] += tiers.count(tier)

    def arrived(self, tier: int, place: tuple[int, Place]) -> None:
        """Take a message that moved here; it gets the next number of its lane."""
        number = self._next[tier]
        self._moved[number << 3 | tier] = place
        # An entry here too, so that no stretch of a send reaches over it.
        self._lanes[tier].firsts.append(number)
        self._lanes[tier].records.append(place[1].record)
        self._next[tier] += 1

    def stretch(self, tier: int, number: int) -> tuple[int, int, int]:
        """Return the record of a message, how many of its tier are before it there, and how many from it on."""
        lane = self._lanes[tier]
        entry = bisect_right(lane.firsts, number) - 1
        first = lane.firsts[entry]
        end = lane.firsts[entry + 1] if entry + 1 < len(lane.firsts) else self._next[tier]
        return lane.records[entry], number - first, end - number

    def moved(self, message: int) -> tuple[int, Place] | None:
        """Return the tier at which a moved message was first sent, and its place there."""
        return self._moved.get(message)

    def origin(self, message: int) -> tuple[int, Place]:
        """Return what `arrived` of the next queue is given for this message."""
        found = self._moved.get(message)
        if found is None:
            offset, nth, _ = self.stretch(message & 7, message >> 3)
            found = message & 7, Place(offset, nth)
        return found


def move(event: Buried | Redriven, source: Places, target: Places) -> None:
    """Let the messages of a move be found under their new numbers."""
    for run, tier in zip(event.runs, event.tiers, strict=True):
        target.arrived(tier, source.origin(run.first << 3 | run.lane))


class Hot:
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


def pick(column: Blobs | None, rows: Sequence[int]) -> list[memoryview]:
    """Return some rows of a column; empty bodies where there is no column."""
    if column is None:
        return [memoryview(b"")] * len(rows)
    if isinstance(rows, range):
        assert rows.step == 1
        return column.stretch(rows.start, rows.stop)
    return [column[row] for row in rows]
