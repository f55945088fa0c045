"""Which rows go into the next frame of the history.

    unwritten events     │ 7: 3 rows │ 9: 100,000 rows ············· │ 12: 5 rows │
    frames               └─────── 65,536 ───────┘└──────── 34,472 + 5 ────────────┘
    covered, within             9, 65,533                  13, 0

Laws of this file
-----------------
1. A frame ends at a limit, in the middle of an event if need be, and says how many
   rows of that event are written. An event larger than memory would bear is
   therefore never expanded at once.
2. The rows of an event have one order: queue, lane, number. Whoever comes back to
   an event after a crash finds the rows that were written at the front, however
   its settlements are cut this time.
3. What a purge settled is put in order, and made into settlements, a turn at a time:
   before a frame is cut, as much of it is unfolded as may go into the frame.
"""

from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import add
from typing import NamedTuple, TypeAlias

from penstock.contract.history_columns import BodyState
from penstock.contract.limits import BATCH_BYTES_MAX, KIB
from penstock.core.queue.settlements import Everything, Settlement
from penstock.runtime.interface import Buffer
from penstock.store.embedded.history_frames import Bodies, part

# Bodies, and attributes if there are any.
Contents: TypeAlias = tuple[Sequence[Buffer], Sequence[Buffer] | None]
# Reads messages of a settlement, from the given one on, as many as the second number says.
ReadBodies: TypeAlias = Callable[[Settlement, int, int], Awaitable[Contents]]

# What one row takes besides its body: columns, name, group, error, headers, with a margin.
LONE_BODY_BYTES_MAX = BATCH_BYTES_MAX - 64 * KIB
# Bodies may be large: before any was seen, few are asked for.
_FIRST_READ = 16
_READ_MAX = 1_024


class About(NamedTuple):
    """What the history must know of a queue: its name, and how to read bodies if it keeps them."""

    name: str
    bodies: ReadBodies | None = None


class Unwritten(NamedTuple):
    """What is not yet in a frame of the event at a journal offset."""

    offset: int
    settlements: list[Settlement]
    rows: int
    # Rows of the event that are in frames already.
    written: int = 0
    is_in_order: bool = False
    # Of a purge or a deletion: what comes after the settlements, in order, and who has it.
    more: Iterator[list[Settlement]] | None = None
    everything: Everything | None = None

    @classmethod
    def of_everything(cls, offset: int, everything: Everything) -> "Unwritten":
        return cls(offset, [], everything.count, is_in_order=True, more=everything.turns(), everything=everything)

    @property
    def settled_at_ms(self) -> int:
        return self.settlements[0].settled_at_ms if self.everything is None else self.everything.at_ms

    def unfolded(self, rows: int) -> Iterator["Unwritten"]:
        """Yield this with more and more of what comes after its settlements, until it shows so many rows, or all."""
        settlements = list(self.settlements)
        shown = sum(settlement.count for settlement in settlements)
        more = self.more
        while more is not None and shown < rows:
            some = next(more, None)
            if some is None:
                more = None
            else:
                settlements += some
                shown += sum(settlement.count for settlement in some)
            if shown == self.rows:
                more = None
            yield self._replace(settlements=settlements, more=more)

    def in_order(self) -> "Unwritten":
        if self.is_in_order or len(self.settlements) == 1:
            return self
        return self._replace(settlements=sorted(self.settlements, key=_place), is_in_order=True)

    def skip(self, rows: int) -> "Unwritten":
        """Return what is left when the first ``rows`` are written, of an event in order."""
        assert 0 <= rows < self.rows
        whole, done = 0, rows
        while done and self.settlements[whole].count <= done:
            done -= self.settlements[whole].count
            whole += 1
        left = self.settlements[whole:]
        if done:
            left[0] = part(left[0], done, left[0].count - done)
        return self._replace(settlements=left, rows=self.rows - rows, written=self.written + rows)


def _place(settlement: Settlement) -> tuple[int, int, int]:
    return settlement.queue, settlement.key & 7, settlement.key >> 3


class Taken(NamedTuple):
    """The rows of one frame."""

    settlements: list[Settlement]
    rows: int
    # So many events end in this frame.
    whole: int
    # The event that goes on in the next one.
    rest: Unwritten | None
    covered: int
    within: int


def take(events: Sequence[Unwritten], names: Mapping[int, str], *, rows_max: int, text_bytes_max: int) -> Taken:
    """Take rows from the front of some events, up to the limits of a frame; at least one."""
    taken: list[Settlement] = []
    left, text = rows_max, 0
    named: set[int] = set()
    for whole, event in enumerate(map(Unwritten.in_order, events)):
        left_before = left
        for settlement in event.settlements:
            text += len(settlement.group) + 4 * len(settlement.error)
            if settlement.queue not in named:
                named.add(settlement.queue)
                text += 4 * len(names[settlement.queue])
            if not left or (taken and text > text_bytes_max):
                return _cut(taken, rows_max - left, whole, event, left_before - left)
            if settlement.count > left:
                taken.append(part(settlement, 0, left))
                return _cut(taken, rows_max, whole, event, left_before)
            taken.append(settlement)
            left -= settlement.count
        if event.more is not None:
            return _cut(taken, rows_max - left, whole, event, left_before - left)
    return Taken(taken, rows_max - left, len(events), None, events[-1].offset + 1, 0)


def _cut(taken: list[Settlement], rows: int, whole: int, event: Unwritten, done: int) -> Taken:
    """End a frame before the end of an event, of which it has ``done`` rows."""
    rest = event.skip(done) if done else None
    return Taken(taken, rows, whole, rest, event.offset, event.written + done)


async def read_bodies(settlements: Sequence[Settlement], about: Mapping[int, About], *, bytes_max: int) -> Bodies:
    """Read what queues keep of bodies, for as many of the first rows as fit into a frame; at least one."""
    found = _Gathered(bytes_max)
    for settlement in settlements:
        read = about[settlement.queue].bodies
        if read is None:
            found.pass_over(settlement.count)
            continue
        start = 0
        while start < settlement.count:
            bodies, attributes = await read(settlement, start, min(found.step, settlement.count - start))
            assert bodies
            if not found.take(bodies, attributes):
                return found.bodies
            start += len(bodies)
    return found.bodies


class _Gathered:
    def __init__(self, bytes_max: int) -> None:
        self.bodies = Bodies(array("B"), [], [])
        self.step = _FIRST_READ
        self._room = bytes_max

    def pass_over(self, count: int) -> None:
        self._add(BodyState.NOT_KEPT, [b""] * count, [b""] * count)

    def take(self, bodies: Sequence[Buffer], attributes: Sequence[Buffer] | None) -> bool:
        """Take what fits and return whether the frame has room for more."""
        if attributes is None:
            attributes = [b""] * len(bodies)
        sizes = list(map(add, map(len, bodies), map(len, attributes)))
        fitting = bisect_right(list(accumulate(sizes)), self._room)
        if not fitting and not self.bodies.states:
            self._take_alone(bodies[0], attributes[0], sizes[0])
            return False
        self._add(BodyState.KEPT, bodies[:fitting], attributes[:fitting])
        self._room -= sum(sizes[:fitting])
        self.step = max(1, min(_READ_MAX, self._room // max(1, *sizes)))
        return fitting == len(bodies)

    def _take_alone(self, body: Buffer, attributes: Buffer, size: int) -> None:
        if size <= LONE_BODY_BYTES_MAX:
            self._add(BodyState.KEPT, [body], [attributes])
        else:
            self._add(BodyState.TOO_LARGE, [b""], [b""])

    def _add(self, state: BodyState, bodies: Sequence[Buffer], attributes: Sequence[Buffer]) -> None:
        self.bodies.states.frombytes(bytes([state]) * len(bodies))
        self.bodies.bodies.extend(bodies)
        self.bodies.attributes.extend(attributes)
