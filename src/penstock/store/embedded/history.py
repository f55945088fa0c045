"""The history: a follower of the journal that writes a row for each settled message.

    journal    ── events ──▶ apply ──▶ settlements
                               │            │ follow: remembered, in memory
                               │            ▼
    history    ◀── frames ── run_once: what is due, and durable in the journal
                               │
    journal    ◀── covered ────┘  segments below it may go

Laws of this file
-----------------
1. A frame has only events that are durable in the journal: the history never
   tells of what a crash undoes.
2. Each frame says up to where the journal is covered, so the last one alone says
   where to go on. A row is in the history exactly once, whatever happens between.
3. `covered` moves only past what is durable in the history, or has no rows.
4. No verb waits for the history. On a full disk settlements wait in memory, and
   their events in the journal; `is_behind` says when there are too many.

Not done here: when to run. The store calls `run_once` now and then, and `flush`
before it closes the log.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

from penstock.contract.limits import (
    HISTORY_BODY_BYTES_MAX,
    HISTORY_PENDING_MAX,
    HISTORY_ROWS_MAX,
    HISTORY_ROWS_MIN,
    HISTORY_TEXT_BYTES_MAX,
    HISTORY_WAIT_MS,
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
from penstock.runtime.interface import Runtime
from penstock.store.embedded.history_cuts import About, Taken, Unwritten, read_bodies, take
from penstock.store.embedded.history_frames import Bodies, Head, HistoryFrame, decode, encode, read_head
from penstock.store.embedded.keeping import ON_DISK
from penstock.telemetry import HISTORY_AHEAD_OF_JOURNAL, HISTORY_RESUMED, HISTORY_STALLED

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
        self, runtime: Runtime, log: Log, journal: Log, about: Callable[[int], About | None], limits: FrameLimits
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._journal = journal
        self._about = about
        self._limits = limits
        # Where the last frame ended: below it, and for so many rows of the event there, nothing is written again.
        self._resume_offset = self._resume_within = 0
        self._followed = 0
        self._unwritten: deque[Unwritten] = deque()
        # Of the queues in `_unwritten`, some of which may be deleted by now.
        self._queues: dict[int, About] = {}
        # Appended frames: where each ends in the history, and the oldest event with rows in it.
        self._in_flight: deque[tuple[int, int]] = deque()
        self._writing = asyncio.Lock()
        self._is_stalled = False
        self.pending_rows = self.pending_settlements = 0
        # Given what was purged when all is told of it.
        self.let_go: Callable[[Everything], None] = lambda _: None
        # Set when there is something to write; cleared by whoever waits for it.
        self.has_rows = asyncio.Event()

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        log: Log,
        *,
        journal: Log,
        about: Callable[[int], About | None],
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
            await self._append(mark, Taken([], 0, 0, None, end, 0), oldest=end)
            last = last._replace(covered=end, within=0)
        self._resume_offset, self._resume_within = last.covered, last.within
        self._followed = last.covered

    @property
    def covered(self) -> int:
        """Return the journal offset below which every row is durable in the history."""
        durable = self._journal.durable_offset
        for end, oldest in self._in_flight:
            if end > self._log.durable_offset:
                return min(oldest, durable)
        if self._unwritten:
            return min(self._unwritten[0].offset, durable)
        return min(self._followed, durable)

    @property
    def is_behind(self) -> bool:
        """Whether more waits in memory than should. Then a store does well to refuse sends; settling never waits."""
        return self.pending_settlements > HISTORY_PENDING_MAX

    def follow(self, offset: int, settlements: Sequence[Settlement] | Everything) -> None:
        """Take note of what the event at a journal offset settled; most settle nothing.

        To be called in the turn of the loop in which the event is appended, while its
        queues are still known, and on replay for each event again.
        """
        assert offset >= self._followed or offset < self._resume_offset, "events are followed in order"
        self._followed = max(self._followed, offset + 1)
        if offset < self._resume_offset:
            return
        if isinstance(settlements, Everything):
            if not settlements.count or self._ask_about({settlements.queue}):
                self.let_go(settlements)
                return
            event = Unwritten.of_everything(offset, settlements)
        else:
            unheeded = self._ask_about({settlement.queue for settlement in settlements})
            kept = [settlement for settlement in settlements if settlement.queue not in unheeded]
            if not kept:
                return
            event = Unwritten(offset, kept, sum(settlement.count for settlement in kept))
        # An event that has no more rows than were written is another one, and all of it is new.
        if offset == self._resume_offset and 0 < self._resume_within < event.rows:
            for event in event.unfolded(self._resume_within):  # noqa: B007, B020 - as far as it has to be.
                pass
            event = event.in_order().skip(self._resume_within)
        self._unwritten.append(event)
        self._count(event, 1)
        self.has_rows.set()

    def pass_by(self, offset: int) -> None:
        """Take note of an event that settles nothing: `follow`, for less."""
        if offset >= self._followed:
            self._followed = offset + 1

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
            until = self._followed
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

    def _front(self, until: int) -> tuple[list[Unwritten], int]:
        """Return events below an offset, enough for a frame, and how many rows they have."""
        events: list[Unwritten] = []
        rows, rows_max = 0, self._limits.rows_max
        for event in self._unwritten:
            if event.offset >= until or rows >= rows_max or len(events) == _EVENTS_MAX:
                break
            events.append(event)
            rows += event.rows
        return events, rows

    async def _unfolded(self, events: list[Unwritten], rows: int) -> tuple[list[Unwritten], int]:
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

    async def _write_frame(self, events: Sequence[Unwritten], rows: int) -> bool:
        """Write one frame and return whether there was room for it."""
        limits, queues = self._limits, dict(self._queues)
        names = {number: about.name for number, about in queues.items()}

        def cut(rows_max: int) -> Taken:
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

    async def _append(self, batch: bytearray, taken: Taken, *, oldest: int) -> bool:
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
        # Before anything is awaited: whoever is cancelled while the disk works must not write these rows again.
        self._advance(taken, oldest)
        await self._log.wait_durable(self._log.end_offset)
        if self._is_stalled:
            self._is_stalled = False
            self._runtime.log_event(HISTORY_RESUMED, pending_rows=self.pending_rows)
        return True

    def _advance(self, taken: Taken, oldest: int) -> None:
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

    def _count(self, event: Unwritten, sign: int) -> None:
        self.pending_rows += sign * event.rows
        self.pending_settlements += sign * len(event.settlements)

    def _stall(self) -> None:
        if not self._is_stalled:
            self._is_stalled = True
            self._runtime.log_event(HISTORY_STALLED, pending_rows=self.pending_rows, covered=self.covered)


def _batch(taken: Taken, names: Mapping[int, str], bodies: Bodies | None) -> bytearray:
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
