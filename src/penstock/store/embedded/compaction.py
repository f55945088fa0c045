"""Keeps a journal short: snapshots, copies of what is live in its oldest segments, and letting those go.

    closed segments ──▶ child: snapshot, plan ──▶ copy what is live ──▶ wait ──▶ drop

Laws of this file
-----------------
1. The loop never waits for it: the child does what is long, copies are made in small
   steps.
2. A segment is dropped only if a durable snapshot beyond it is kept, and one before
   that; if every live body in it is durable elsewhere; if the history has told of all
   that happened in it, and of all whose bodies were in it; and if no reader is about to
   read from it.
3. Copying changes nothing but places. A message that was settled meanwhile is copied
   for nothing; one that moved to another queue meanwhile is copied there.
4. An error, short of a failing disk, is logged and tried again: a journal
   that is not shortened is long, not wrong.
"""

import asyncio
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from penstock.contract.limits import COPY_BYTES_MAX, COPY_MESSAGES_MAX
from penstock.core.queue.events import Copied
from penstock.core.queue.message import Run
from penstock.frame import Blobs
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogBusy, LogFull
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import BackgroundProcessFailed, Runtime
from penstock.store.embedded.body_index import Span, pick
from penstock.store.embedded.shard import JournalEntry, Shard
from penstock.store.embedded.shard_state import ON_DISK, RetentionLimits, stored
from penstock.store.embedded.snapshot_builder import ClosedSegment, SnapshotRequest, SnapshotResult, build
from penstock.store.embedded.snapshot_file import snapshot_name, snapshot_offsets
from penstock.telemetry import STORE_SNAPSHOT_DAMAGED, STORE_SNAPSHOT_FAILED, STORE_SNAPSHOT_MADE

# Places of bodies that are looked at in one step, and perhaps read.
_PLACES_A_TURN = 100
# How often it is said that there is nothing to build on.
LOST_MS = 60_000
# What a copy takes besides its bodies: for each, for each run, and for headers and the key.
BODY_BYTES = 16
RUN_BYTES = 32
COPY_MARGIN_BYTES = 4 * 1024
# A disk is short of space when it has less than this many times what sends leave free.
SHORT_TIMES = 2


class Folders(NamedTuple):
    """Where a shard keeps what."""

    journal: str
    snapshots: str
    history: str


class JournalCompaction:
    def __init__(
        self,
        runtime: Runtime,
        folders: Folders,
        log: DiskLog,
        shard: Shard,
        keep: RetentionLimits = ON_DISK,
        *,
        is_synced: bool = True,
    ) -> None:
        self._keep = keep
        # Whether what is durable to the log has had its fsync.
        self._is_synced = is_synced
        self._runtime = runtime
        self._journal, self._snapshots, _ = folders
        self._log = log
        self._shard = shard
        # When the next snapshot may be made; and when if the disk is short of space by then.
        self._not_before_ms = self._short_not_before_ms = 0
        # The end of the journal when the last copy was made.
        self._copied_upto = log.end_offset
        # What the last child has found, until it is done.
        self._plan: SnapshotResult | None = None
        # How much sends leave free; below about twice that the disk is short of space.
        self._leave_free_bytes = log.settings.leave_free_bytes
        self._is_short = False
        # The end of the journal when its active segment was last closed for want of space.
        self._closed_at = log.end_offset

    @property
    def may_run_short(self) -> bool:
        """Whether the disk has to be looked at from time to time."""
        return bool(self._leave_free_bytes)

    async def run_once(self) -> bool:
        """Make a snapshot if there is anything new to put into it, and shorten the journal.

        Returns whether there is nothing more to do until another segment is closed.
        Raises `LogBusy` and `LogFull`, and goes on from there when it is called again.
        """
        if self._plan is None:
            await self._make_room()
            kept = snapshot_offsets(self._runtime.disk, self._snapshots)
            previous = kept[-1] if kept else None
            closed = self._log.segments[:-1]
            if not closed or closed[-1].next_offset <= (previous or 0):
                return True
            await self._make_plan(previous)
        plan, self._plan = self._plan, None
        if plan is not None:
            try:
                await self._shorten(plan)
            except (LogBusy, LogFull):
                # Where space is short, the next plan may need less of it.
                self._plan = None if self._is_short else plan
                raise
        return False

    async def _make_room(self) -> None:
        """Close the active segment if the disk is short of space: what is settled in it lets go of others."""
        self._is_short = bool(self._leave_free_bytes) and await off_loop(
            self._runtime.workers,
            lambda: self._runtime.disk.space(self._journal).free_bytes < SHORT_TIMES * self._leave_free_bytes,
        )
        if self._is_short and self._log.end_offset > self._closed_at:
            await self._shard.tell_history()
            end_offset = self._log.end_offset
            await self._log.roll()
            # Unless there was no room for it: then again.
            if self._log.segments[-1].base_offset >= end_offset:
                self._closed_at = self._log.end_offset

    async def _make_plan(self, previous: int | None) -> None:
        now_ms = self._runtime.clock.now_ms()
        segments = self._finished()
        not_before_ms = self._short_not_before_ms if self._is_short else self._not_before_ms
        if now_ms < not_before_ms or not segments or segments[-1].next_offset <= (previous or 0):
            return
        if segments[0].base_offset > (previous or 0):
            # All that led on to here are lost. What is in memory is whole, and so is the journal from here on.
            self._not_before_ms = self._short_not_before_ms = now_ms + LOST_MS
            self._runtime.log_event(
                STORE_SNAPSHOT_FAILED, folder=self._snapshots, error="no snapshot leads to the journal"
            )
            return
        plan = await self._build(
            SnapshotRequest(
                self._journal,
                self._snapshots,
                previous,
                segments,
                self._snapshots_kept,
                copy_bytes_max=self._leave_free_bytes // 4 if self._is_short else None,
            )
        )
        done_ms = self._runtime.clock.now_ms()
        self._not_before_ms = done_ms + self._keep.rest_factor * (done_ms - now_ms)
        # Where space is short, others wait for it.
        self._short_not_before_ms = done_ms + (done_ms - now_ms)
        if plan is not None:
            self._runtime.log_event(
                STORE_SNAPSHOT_MADE, folder=self._snapshots, offset=plan.offset, size_bytes=plan.size_bytes
            )
            self._forget(plan)
        self._plan = plan

    @property
    def _snapshots_kept(self) -> int:
        """One where space is short: the journal between two of them may be all that could go."""
        return 1 if self._is_short else self._keep.snapshots

    async def _shorten(self, plan: SnapshotResult) -> None:
        if plan.drop_before > self._log.start_offset:
            await self._copy(plan)
            # Also if nothing was copied: a queue was passed over because it is deleted, and must stay so.
            await self._shard.settled()
            if not await self._shard.tell_history():
                raise LogFull("the history has not told yet of what was settled in segments that are to go")
            await self._shard.readers.last()
            if not self._is_synced:
                await self._sync()
            await self._log.drop_before(plan.drop_before)
        await off_loop(self._runtime.workers, self._remove_old)

    async def _sync(self) -> None:
        """Let all copies have their fsync, which closing a segment gives: a power cut may lose new messages only."""
        end_offset = self._log.end_offset
        await self._log.roll()
        if self._log.segments[-1].base_offset < end_offset:
            raise LogFull("there is no room for another segment, and what was copied has had no fsync")

    def _finished(self) -> list[ClosedSegment]:
        """Closed segments of which the history has told everything."""
        told = self._shard.told_offset()
        return [
            ClosedSegment(segment.base_offset, segment.next_offset, segment.size_bytes)
            for segment in self._log.segments[:-1]
            if segment.next_offset <= told
        ]

    async def _build(self, order: SnapshotRequest) -> SnapshotResult | None:
        try:
            answer = await self._runtime.aside.run(build, msgspec.msgpack.encode(order))
        except BackgroundProcessFailed as error:
            if error.is_disk_failure:
                self._runtime.halt(str(error))
            self._runtime.log_event(STORE_SNAPSHOT_FAILED, folder=self._snapshots, error=str(error))
            return None
        if not answer:
            self._runtime.log_event(
                STORE_SNAPSHOT_DAMAGED, folder=self._snapshots, error=f"that of offset {order.previous}"
            )
            return None
        return msgspec.msgpack.decode(answer, type=SnapshotResult)

    def _forget(self, plan: SnapshotResult) -> None:
        memory = self._shard.memory
        memory.moves = [move for move in memory.moves if move.offset >= plan.offset]
        for number, lanes in plan.lanes.items():
            places = memory.places.get(number)
            if places is None:
                continue
            for lane, forgotten in zip(places.lanes, lanes, strict=True):
                # The snapshot must know of all copies: what it says of places is out of date otherwise.
                if forgotten.columns is not None and plan.offset >= self._copied_upto:
                    lane.replace_below(forgotten.upto, forgotten.columns)
                lane.prune(forgotten.lowest)

    async def _copy(self, plan: SnapshotResult) -> None:
        for number, columns in plan.copies.items():
            lanes, firsts, lengths = columns
            runs = map(Run, array("B", lanes), array("Q", firsts), array("I", lengths))
            await self._copy_runs(number, runs, plan.drop_before)
        # What the plan knows by its old number only; also what moves while this goes on.
        for nth, (_, into, moved) in enumerate(self._shard.memory.moves, start=1):
            await self._copy_runs(into, moved, plan.drop_before)
            if nth % _PLACES_A_TURN == 0:
                await asyncio.sleep(0)

    async def _copy_runs(self, number: int, runs: Iterable[Run], drop_before: int) -> None:
        """Write those bodies again that are in what is to be dropped, in small steps."""
        step = _Step()
        for lane, first, length in runs:
            for nth, (at, span) in enumerate(self._places(number, lane, first, length), start=1):
                if nth % _PLACES_A_TURN == 0:
                    await asyncio.sleep(0)
                if span.record < drop_before:
                    bodies, attributes = await self._read(span)
                    while bodies:
                        if step.is_full:
                            await self._write(number, step)
                            step = _Step()
                        count = step.take(lane, at + span.length - len(bodies), bodies, attributes)
                        bodies, attributes = bodies[count:], attributes and attributes[count:]
        if step.runs:
            await self._write(number, step)

    def _places(self, number: int, lane: int, first: int, length: int) -> Iterator[tuple[int, Span]]:
        """Yield where the messages of a run are, each place with its first number; nothing for what was pruned."""
        places = self._shard.memory.places.get(number)
        if places is not None and places.lanes[lane].has(first):
            for span in places.lanes[lane].spans(first, first + length):
                yield first, span
                first += span.length

    async def _write(self, number: int, step: "_Step") -> None:
        """Append a step and wait until it is durable: the next one is not to crowd out the senders."""
        # Where space is short, a plan copies little, and lets go of twice as much.
        with self._log.reserve(step.size_bytes + COPY_MARGIN_BYTES, from_spare=self._is_short) as space:
            # Deleted meanwhile, it needs no copy.
            if number in self._shard.memory.queues:
                event = Copied(number, self._shard.now_ms(), tuple(step.runs))
                self._shard.write(space, [JournalEntry(event, *step.columns())])
                self._copied_upto = self._log.end_offset
        await self._shard.settled()

    async def _read(self, span: Span) -> tuple[Sequence[memoryview], Sequence[memoryview] | None]:
        (batch, *_) = await self._log.read(span.record, bytes_max=1)
        frame = stored(batch, span.record)
        rows = frame.rows(span.tier, span.nth, span.length)
        return pick(frame.bodies, rows), None if frame.attributes is None else pick(frame.attributes, rows)

    def _remove_old(self) -> None:
        for offset in snapshot_offsets(self._runtime.disk, self._snapshots)[: -self._snapshots_kept]:
            self._runtime.disk.remove(f"{self._snapshots}/{snapshot_name(offset)}")


class _Step:
    """Bodies to be copied at once: not too many, and not too many bytes, as they are and not as they should be."""

    __slots__ = ("runs", "size_bytes", "_bodies", "_attributes", "_has_attributes")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.size_bytes = 0
        self._bodies: list[memoryview] = []
        self._attributes: list[memoryview] = []
        self._has_attributes = False

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= COPY_BYTES_MAX or len(self._bodies) >= COPY_MESSAGES_MAX

    def take(self, lane: int, first: int, bodies: Sequence[memoryview], attributes: Sequence[memoryview] | None) -> int:
        """Take as many of these as there is room for, and return how many: one at least."""
        extra = attributes or [memoryview(b"")] * len(bodies)
        count = 0
        while count < len(bodies) and not self.is_full:
            self._bodies.append(bodies[count])
            self._attributes.append(extra[count])
            self.size_bytes += len(bodies[count]) + len(extra[count]) + BODY_BYTES
            count += 1
        self._has_attributes |= attributes is not None
        self._add_run(lane, first, count)
        return count

    def _add_run(self, lane: int, first: int, count: int) -> None:
        last = self.runs[-1] if self.runs else None
        if last is not None and last.lane == lane and last.first + last.length == first:
            self.runs[-1] = Run(lane, last.first, last.length + count)
        else:
            self.runs.append(Run(lane, first, count))
            self.size_bytes += RUN_BYTES

    def columns(self) -> tuple[Blobs, Blobs | None]:
        return Blobs.of(self._bodies), Blobs.of(self._attributes) if self._has_attributes else None
