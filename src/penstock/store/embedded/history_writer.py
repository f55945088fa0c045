"""The history: a follower of the journal that writes a row for each settled message.

    journal    ── events ──▶ apply ──▶ settlements
                               │            │ follow: remembered, in memory
                               │            ▼
    history    ◀── frames ── run_once: what is due, and durable in the journal
                               │
    journal    ◀── covered ────┘  segments below it may go

    unwritten events     │ 7: 3 rows │ 9: 100,000 rows ············· │ 12: 5 rows │
    frames               └─────── 65,536 ───────┘└──────── 34,472 + 5 ────────────┘
    covered, within             9, 65,533                  13, 0

Laws of this file
-----------------
1. A frame has only events that are durable in the journal: the history never
   tells of what a crash undoes.
2. Each frame says up to where the journal is covered, so the last one alone says
   where to go on. A row is in the history exactly once, whatever happens between.
3. `covered` moves only past what is durable in the history, or has no rows.
4. No verb waits for the history. On a full disk settlements wait in memory, and
   their events in the journal; `is_behind` says when there are too many.
5. A frame ends at a limit, in the middle of an event if need be, and says how many
   rows of that event are written. An event larger than memory would bear is
   therefore never expanded at once.
6. The rows of an event have one order: queue, lane, number. After a crash the rows
   of it that were written are at the front, however its settlements are cut this time.
7. What a purge settled is put in order, and made into settlements, a turn at a time:
   before a frame is cut, as much of it is unfolded as may go into the frame.

Not done here: when to run. The store calls `run_once` now and then, and `flush`
before it closes the log.
"""

import asyncio
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import NamedTuple, TypeAlias, TypeVar

from penstock.contract.history_columns import BodyState
from penstock.contract.limits import (
    BATCH_BYTES_MAX,
    HISTORY_BODY_BYTES_MAX,
    HISTORY_PENDING_MAX,
    HISTORY_ROWS_MAX,
    HISTORY_ROWS_MIN,
    HISTORY_TEXT_BYTES_MAX,
    HISTORY_WAIT_MS,
    KIB,
    MIB,
)
from penstock.contract.queue_settings import DAY_MS
from penstock.core.queue.settlements import Everything, Settlement
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import Log, LogBusy, LogFull
from penstock.log.segment import first_kept_offset
from penstock.log.settings import LogSettings
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import Buffer, Runtime
from penstock.store.embedded.history_format import Bodies, Head, HistoryFrame, decode, encode, part, read_head
from penstock.store.embedded.shard_state import ON_DISK
from penstock.telemetry import HISTORY_AHEAD_OF_JOURNAL, HISTORY_RESUMED, HISTORY_STALLED

# Bodies, and attributes if there are any.
Contents: TypeAlias = tuple[Sequence[Buffer], Sequence[Buffer] | None]


# Reads messages of a settlement, from the given one on, as many as the second number says.
ReadBodies: TypeAlias = Callable[[Settlement, int, int], Awaitable[Contents]]


class QueueInfo(NamedTuple):
    """What the history must know of a queue: its name, and how to read bodies if it keeps them."""

    name: str
    bodies: ReadBodies | None = None


class PendingEvent(NamedTuple):
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
    def of_everything(cls, offset: int, everything: Everything) -> "PendingEvent":
        return cls(offset, [], everything.count, is_in_order=True, more=everything.turns(), everything=everything)

    @property
    def settled_at_ms(self) -> int:
        return self.settlements[0].settled_at_ms if self.everything is None else self.everything.at_ms

    def unfolded(self, rows: int) -> Iterator["PendingEvent"]:
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

    def in_order(self) -> "PendingEvent":
        if self.is_in_order or len(self.settlements) == 1:
            return self
        return self._replace(settlements=sorted(self.settlements, key=_place), is_in_order=True)

    def skip(self, rows: int) -> "PendingEvent":
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


class FrameRows(NamedTuple):
    """The rows of one frame."""

    settlements: list[Settlement]
    rows: int
    # So many events end in this frame.
    whole: int
    # The event that goes on in the next one.
    rest: PendingEvent | None
    covered: int
    within: int


T = TypeVar("T")

# Small segments, so that retention is exact to a day. No spare: nothing in a history makes room.
LOG_SETTINGS = LogSettings(segment_bytes_max=64 * MIB, segment_age_ms_max=DAY_MS, spare_bytes=0)

READ_BYTES = 4 * MIB
# A frame of more than this is made in a worker: the loop must not wait for it.
_INLINE_ROWS = 8_192
_INLINE_SETTLEMENTS = 512
# So much of what a purge settled is unfolded at once: a frame of it takes a worker as long as a few turns of the loop.
_UNFOLDED_ROWS = HISTORY_ROWS_MIN
# The loop itself looks at each event of a frame, so many at most.
_EVENTS_MAX = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimits:
    """When a frame is due, and when it is full."""

    rows_min: int = HISTORY_ROWS_MIN
    wait_ms: int = HISTORY_WAIT_MS
    rows_max: int = HISTORY_ROWS_MAX
    text_bytes_max: int = HISTORY_TEXT_BYTES_MAX
    body_bytes_max: int = HISTORY_BODY_BYTES_MAX


class History:
    """Lives on the event loop. Made by `open`, then told every event of the journal from its start on, in order."""

    def __init__(
        self, runtime: Runtime, log: Log, journal: Log, about: Callable[[int], QueueInfo | None], limits: FrameLimits
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._journal = journal
        self._about = about
        self._limits = limits
        # Where the last frame ended: below it, and for so many rows of the event there, nothing is written again.
        self._resume_offset = self._resume_within = 0
        self.followed = 0
        self._unwritten: deque[PendingEvent] = deque()
        # Of the queues in `_unwritten`, some of which may be deleted by now.
        self._queues: dict[int, QueueInfo] = {}
        # Appended frames: where each ends in the history, and the oldest event with rows in it.
        self._in_flight: deque[tuple[int, int]] = deque()
        self._writing = asyncio.Lock()
        self._is_stalled = False
        self.pending_rows = self.pending_settlements = 0
        # Given what was purged when the history has all of it.
        self.let_go: Callable[[Everything], None] = lambda _: None
        # Set when there is something to write; cleared by the task that waits for it.
        self.has_rows = asyncio.Event()

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        log: Log,
        *,
        journal: Log,
        about: Callable[[int], QueueInfo | None],
        limits: FrameLimits | None = None,
    ) -> "History":
        """Find out where the history ended. ``about`` is asked at each event for its queues; None keeps no history.

        The journal has just been opened: nothing was appended to it yet. Raises
        `UnknownFrame` if the last frame was written by another version.
        """
        history = cls(runtime, log, journal, about, limits or FrameLimits())
        last = await _last_head(log)
        if last is not None:
            await history._go_on_from(last)
        return history

    async def _go_on_from(self, last: Head) -> None:
        end = self._journal.end_offset
        if (last.covered, last.within) > (end, 0):
            self._runtime.log_event(HISTORY_AHEAD_OF_JOURNAL, covered=last.covered, journal_end=end)
            # New events will get offsets that the last frame claims to cover: a frame without rows takes that
            # back. On a full disk the next frame does.
            mark = record.encode([encode([], {}, covered=end, within=0)], at_ms=self._runtime.clock.now_ms())
            await self._append(mark, FrameRows([], 0, 0, None, end, 0), oldest=end)
            last = last._replace(covered=end, within=0)
        self._resume_offset, self._resume_within = last.covered, last.within
        self.followed = last.covered

    @property
    def covered(self) -> int:
        """Return the journal offset below which every row is durable in the history."""
        durable = self._journal.durable_offset
        for end, oldest in self._in_flight:
            if end > self._log.durable_offset:
                return min(oldest, durable)
        if self._unwritten:
            return min(self._unwritten[0].offset, durable)
        return min(self.followed, durable)

    @property
    def is_behind(self) -> bool:
        """Whether more waits in memory than should. Then a store does well to refuse sends; settling never waits."""
        return self.pending_settlements > HISTORY_PENDING_MAX

    def follow(self, offset: int, settlements: Sequence[Settlement] | Everything) -> None:
        """Take note of what the event at a journal offset settled; most settle nothing.

        To be called in the turn of the loop in which the event is appended, while its
        queues are still known, and on replay for each event again.
        """
        assert offset >= self.followed or offset < self._resume_offset, "events are followed in order"
        self.followed = max(self.followed, offset + 1)
        if offset < self._resume_offset:
            return
        if isinstance(settlements, Everything):
            if not settlements.count or self._ask_about({settlements.queue}):
                self.let_go(settlements)
                return
            event = PendingEvent.of_everything(offset, settlements)
        else:
            unheeded = self._ask_about({settlement.queue for settlement in settlements})
            kept = [settlement for settlement in settlements if settlement.queue not in unheeded]
            if not kept:
                return
            event = PendingEvent(offset, kept, sum(settlement.count for settlement in kept))
        # An event that has no more rows than were written is another one, and all of it is new.
        if offset == self._resume_offset and 0 < self._resume_within < event.rows:
            for event in event.unfolded(self._resume_within):  # noqa: B007, B020 - as far as it has to be.
                pass
            event = event.in_order().skip(self._resume_within)
        self._unwritten.append(event)
        self._count(event, 1)
        self.has_rows.set()

    def _ask_about(self, queues: AbstractSet[int]) -> set[int]:
        """Remember what there is to know of the queues, and return those that keep no history."""
        unheeded = set()
        for queue in queues:
            about = self._about(queue)
            if about is None:
                unheeded.add(queue)
            else:
                self._queues[queue] = about
        return unheeded

    async def run_once(self, now_ms: int) -> None:
        """Write the frames that are due: large enough, or with a row that has waited long enough."""
        async with self._writing:
            await self._write(self._journal.durable_offset, now_ms)

    async def flush(self) -> None:
        """Write everything followed so far. What a full disk refuses is left for later, or for the next start."""
        async with self._writing:
            until = self.followed
            await self._journal.wait_durable(until)
            await self._write(until, None)

    async def _write(self, until: int, now_ms: int | None) -> None:
        limits = self._limits
        while True:
            events, rows = self._front(until)
            if not events:
                return
            is_old = now_ms is None or now_ms - events[0].settled_at_ms >= limits.wait_ms
            if rows < limits.rows_min and not is_old:
                return
            events, rows = await self._unfolded(events, rows)
            if not await self._write_frame(events, rows):
                return

    def _front(self, until: int) -> tuple[list[PendingEvent], int]:
        """Return events below an offset, enough for a frame, and how many rows they have."""
        events: list[PendingEvent] = []
        rows, rows_max = 0, self._limits.rows_max
        for event in self._unwritten:
            if event.offset >= until or rows >= rows_max or len(events) == _EVENTS_MAX:
                break
            events.append(event)
            rows += event.rows
        return events, rows

    async def _unfolded(self, events: list[PendingEvent], rows: int) -> tuple[list[PendingEvent], int]:
        """Unfold the first event that has more to tell than it shows, and leave out those after it."""
        for nth, event in enumerate(events):
            self._count(event, -1)
            try:
                for shown in event.unfolded(min(self._limits.rows_max, _UNFOLDED_ROWS)):
                    self._unwritten[nth] = events[nth] = shown
                    await asyncio.sleep(0)
            finally:
                self._count(self._unwritten[nth], 1)
            if event.more is not None:
                return events[: nth + 1], sum(each.rows for each in events[: nth + 1])
        return events, rows

    async def _write_frame(self, events: Sequence[PendingEvent], rows: int) -> bool:
        """Write one frame and return whether there was room for it."""
        limits, queues = self._limits, dict(self._queues)
        names = {number: about.name for number, about in queues.items()}

        def cut(rows_max: int) -> FrameRows:
            return take(events, names, rows_max=rows_max, text_bytes_max=limits.text_bytes_max)

        is_large = rows > _INLINE_ROWS or sum(len(event.settlements) for event in events) > _INLINE_SETTLEMENTS
        taken = await self._run(is_large, lambda: cut(limits.rows_max))
        bodies = None
        if any(queues[number].bodies for number in {settlement.queue for settlement in taken.settlements}):
            is_large = True
            bodies = await read_bodies(taken.settlements, queues, bytes_max=limits.body_bytes_max)
            fitting = len(bodies.states)
            if fitting < taken.rows:
                taken = await self._run(is_large, lambda: cut(fitting))
        batch = await self._run(is_large, lambda: _batch(taken, names, bodies))
        return await self._append(batch, taken, oldest=events[0].offset)

    async def _run(self, is_large: bool, work: Callable[[], T]) -> T:
        return await off_loop(self._runtime.workers, work) if is_large else work()

    async def _append(self, batch: bytearray, taken: FrameRows, *, oldest: int) -> bool:
        try:
            # A row lets go of events in the journal: on a disk that is nearly full it comes before any send.
            space = self._log.reserve(len(batch), from_spare=True)
        except LogBusy:
            return False
        except LogFull:
            self._stall()
            return False
        with space:
            self._log.append(batch, space)
        # Before anything is awaited: a task that is cancelled while the disk works must not write these rows again.
        self._advance(taken, oldest)
        await self._log.wait_durable(self._log.end_offset)
        if self._is_stalled:
            self._is_stalled = False
            self._runtime.log_event(HISTORY_RESUMED, pending_rows=self.pending_rows)
        return True

    def _advance(self, taken: FrameRows, oldest: int) -> None:
        while self._in_flight and self._in_flight[0][0] <= self._log.durable_offset:
            self._in_flight.popleft()
        self._in_flight.append((self._log.end_offset, oldest))
        for _ in range(taken.whole):
            told = self._unwritten.popleft()
            self._count(told, -1)
            if told.everything is not None:
                self.let_go(told.everything)
        if taken.rest is not None:
            self._count(self._unwritten[0], -1)
            self._unwritten[0] = taken.rest
            self._count(taken.rest, 1)
        if not self._unwritten:
            self._queues.clear()

    def _count(self, event: PendingEvent, sign: int) -> None:
        self.pending_rows += sign * event.rows
        self.pending_settlements += sign * len(event.settlements)

    def _stall(self) -> None:
        if not self._is_stalled:
            self._is_stalled = True
            self._runtime.log_event(HISTORY_STALLED, pending_rows=self.pending_rows, covered=self.covered)


def _batch(taken: FrameRows, names: Mapping[int, str], bodies: Bodies | None) -> bytearray:
    # The time of the rows, not of the writing: history is kept for so long after a message was settled.
    at_ms = max(settlement.settled_at_ms for settlement in taken.settlements)
    return record.encode(
        [encode(taken.settlements, names, covered=taken.covered, within=taken.within, bodies=bodies)], at_ms=at_ms
    )


async def frames(log: Log, from_offset: int) -> AsyncIterator[tuple[int, HistoryFrame]]:
    """Yield each frame from an offset on with its own offset, up to what is durable now.

    Offsets lost to damage are passed over. Raises `OffsetOutOfRange` where retention
    was faster, `UnknownFrame` and `BadFrame`.
    """
    offset, end = from_offset, log.durable_offset
    while offset < end:
        for batch in await log.read(offset, bytes_max=READ_BYTES):
            header = record.header(batch)
            for at, entry in enumerate(record.records(batch), start=header.base_offset):
                if at >= offset:
                    yield at, decode(entry.key, entry.value)
            offset = header.next_offset


async def retain(
    log: DiskLog, *, now_ms: int, keep_ms: int = ON_DISK.history_ms, keep_bytes: int = ON_DISK.history_bytes
) -> None:
    """Let go of the oldest segments of a history that are too old, or too much."""
    await log.drop_before(first_kept_offset(log.segments, now_ms=now_ms, age_ms_max=keep_ms, bytes_max=keep_bytes))


async def _last_head(log: Log) -> Head | None:
    """Return what the last frame says, before a hole if the history ends with one."""
    offset = log.durable_offset
    while offset > log.start_offset:
        (batch, *_) = await log.read(offset - 1, bytes_max=1)
        header = record.header(batch)
        if not header.is_hole:
            *_, last = record.records(batch)
            return read_head(last.key)
        offset = header.base_offset
    return None


# What one row takes besides its body: columns, name, group, error, headers, with a margin.
LONE_BODY_BYTES_MAX = BATCH_BYTES_MAX - 64 * KIB


# Bodies may be large: before any was seen, few are asked for.
_FIRST_READ = 16


_READ_MAX = 1_024


def _place(settlement: Settlement) -> tuple[int, int, int]:
    return settlement.queue, settlement.key & 7, settlement.key >> 3


def take(events: Sequence[PendingEvent], names: Mapping[int, str], *, rows_max: int, text_bytes_max: int) -> FrameRows:
    """Take rows from the front of some events, up to the limits of a frame; at least one."""
    taken: list[Settlement] = []
    left, text = rows_max, 0
    named: set[int] = set()
    for whole, event in enumerate(map(PendingEvent.in_order, events)):
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
    return FrameRows(taken, rows_max - left, len(events), None, events[-1].offset + 1, 0)


def _cut(taken: list[Settlement], rows: int, whole: int, event: PendingEvent, done: int) -> FrameRows:
    """End a frame before the end of an event, of which it has ``done`` rows."""
    rest = event.skip(done) if done else None
    return FrameRows(taken, rows, whole, rest, event.offset, event.written + done)


async def read_bodies(settlements: Sequence[Settlement], about: Mapping[int, QueueInfo], *, bytes_max: int) -> Bodies:
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
