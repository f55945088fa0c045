"""Keeps a journal short: snapshots, copies of what is live in its oldest segments, and letting those go.

    closed segments ──▶ child: snapshot, plan ──▶ copy what is live ──▶ wait ──▶ drop

Laws of this file
-----------------
1. The loop never waits for it: the child does what is long, copies are made in small
   steps.
2. A segment is dropped only if a durable snapshot beyond it is kept, and one before
   that; if every live body in it is durable elsewhere; if nobody is about to read from
   it; and if the history has told of all that happened in it.
3. Copying changes nothing but places. A message that was settled meanwhile is copied
   for nothing; one that moved to another queue meanwhile is copied there.
4. Whatever goes wrong, short of the disk failing, is noted and tried again: a journal
   that is not shortened is long, not wrong.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from penstock.core.events import Copied
from penstock.core.limits import COPY_BYTES_MAX, COPY_MESSAGES_MAX
from penstock.core.message import Run
from penstock.log.disk_log import DiskLog
from penstock.log.frame import Blobs
from penstock.log.jobs import off_loop
from penstock.runtime.interface import AsideFailed, Runtime
from penstock.store.embedded.bodies import Span, pick
from penstock.store.embedded.building import ClosedSegment, Order, Plan, build
from penstock.store.embedded.replay import stored
from penstock.store.embedded.shard import Fact, Shard
from penstock.store.embedded.snapshot import snapshot_name, snapshot_offsets
from penstock.telemetry import STORE_SNAPSHOT_FAILED, STORE_SNAPSHOT_MADE

# A snapshot may take a tenth of the time of one processor.
REST_FACTOR = 9
# For keys, headers and runs of a copy, besides the bodies.
COPY_MARGIN_BYTES = 64 * 1024


class Folders(NamedTuple):
    """Where a shard keeps what."""

    journal: str
    snapshots: str
    history: str


class Upkeep:
    def __init__(self, runtime: Runtime, folders: Folders, log: DiskLog, shard: Shard) -> None:
        self._runtime = runtime
        self._journal, self._snapshots, _ = folders
        self._log = log
        self._shard = shard
        self._not_before_ms = 0
        # The end of the journal when the last copy was made.
        self._copied_upto = log.end_offset

    async def run_once(self) -> bool:
        """Make a snapshot if there is anything new to put into it, and shorten the journal.

        Returns whether there is nothing more to do until another segment is closed.
        """
        now_ms = self._runtime.clock.now_ms()
        kept = snapshot_offsets(self._runtime.disk, self._snapshots)
        previous = kept[-1] if kept else None
        closed = self._log.segments[:-1]
        if not closed or closed[-1].next_offset <= (previous or 0):
            return True
        segments = self._finished()
        if now_ms < self._not_before_ms or not segments or segments[-1].next_offset <= (previous or 0):
            return False
        plan = await self._build(Order(self._journal, self._snapshots, previous, segments))
        took_ms = self._runtime.clock.now_ms() - now_ms
        self._not_before_ms = self._runtime.clock.now_ms() + REST_FACTOR * took_ms
        if plan is None:
            return False
        self._runtime.note(STORE_SNAPSHOT_MADE, folder=self._snapshots, offset=plan.offset, size_bytes=plan.size_bytes)
        self._forget(plan)
        if plan.drop_before > self._log.start_offset:
            await self._copy(plan)
            await self._shard.settled()
            await self._shard.readers.last()
            # A deleted queue is not copied. Until its history is written, the bodies must stay where they are; what
            # does not go now goes when the next segment is closed.
            if self._shard.memory.deleted_upto <= self._shard.told_offset():
                await self._log.drop_before(plan.drop_before)
        await off_loop(self._runtime.workers, lambda: self._remove(kept[:-1]))
        return False

    def _finished(self) -> list[ClosedSegment]:
        """Closed segments of which the history has told everything."""
        told = self._shard.told_offset()
        return [
            ClosedSegment(segment.base_offset, segment.next_offset, segment.size_bytes)
            for segment in self._log.segments[:-1]
            if segment.next_offset <= told
        ]

    async def _build(self, order: Order) -> Plan | None:
        try:
            answer = await self._runtime.aside.run(build, msgspec.msgpack.encode(order))
        except AsideFailed as error:
            if error.is_disk_failure:
                self._runtime.halt(str(error))
            self._runtime.note(STORE_SNAPSHOT_FAILED, folder=self._snapshots, error=str(error))
            return None
        return msgspec.msgpack.decode(answer, type=Plan)

    def _forget(self, plan: Plan) -> None:
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

    async def _copy(self, plan: Plan) -> None:
        for number, columns in plan.copies.items():
            for runs in _steps(columns, self._mean_bytes(number)):
                if number not in self._shard.memory.queues:
                    break
                await self._copy_step(number, runs)
        await self._copy_moved(plan)

    async def _copy_moved(self, plan: Plan) -> None:
        """Copy what the plan knows by its old number only, also if it moves while this goes on."""
        memory = self._shard.memory
        for _, into, run in memory.moves:
            lane = memory.places[into].lanes[run.lane] if into in memory.places else None
            if lane and lane.has(run.first) and lane.span(run.first, run.first + 1).record < plan.drop_before:
                await self._copy_step(into, [run])

    def _mean_bytes(self, number: int) -> int:
        places = self._shard.memory.places.get(number)
        return 1 if places is None else max(1, places.size_bytes // max(1, places.messages))

    async def _copy_step(self, number: int, runs: list[Run]) -> None:
        """Write some bodies again, and wait until they are durable: the next step is not to crowd out the senders."""
        spans = self._shard.memory.places[number].spans(runs)
        bodies: list[memoryview] = []
        attributes: list[memoryview] = []
        has_attributes = False
        for span in spans:
            found, extra = await self._read(span)
            bodies += found
            attributes += extra or [memoryview(b"")] * span.length
            has_attributes |= extra is not None
        columns = Blobs.of(bodies), Blobs.of(attributes) if has_attributes else None
        size = sum(map(len, bodies)) + sum(map(len, attributes)) + 16 * len(bodies) + 32 * len(runs)
        with self._log.reserve(size + COPY_MARGIN_BYTES) as space:
            # Purged, deleted or dropped meanwhile, or pruned as all of it was settled: then it needs no copy.
            if number in self._shard.memory.queues:
                event = Copied(number, self._shard.now_ms(), tuple(runs))
                self._shard.write(space, [Fact(event, *columns)])
                self._copied_upto = self._log.end_offset
        await self._shard.settled()

    async def _read(self, span: Span) -> tuple[Sequence[memoryview], Sequence[memoryview] | None]:
        (batch, *_) = await self._log.read(span.record, bytes_max=1)
        frame = stored(batch, span.record)
        rows = frame.rows(span.tier, span.nth, span.length)
        return pick(frame.bodies, rows), None if frame.attributes is None else pick(frame.attributes, rows)

    def _remove(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._runtime.disk.remove(f"{self._snapshots}/{snapshot_name(offset)}")


def _steps(columns: tuple[bytes, bytes, bytes], mean_bytes: int) -> Iterator[list[Run]]:
    """Cut runs into steps of not too many messages and not too many bytes."""
    most = max(1, min(COPY_MESSAGES_MAX, COPY_BYTES_MAX // mean_bytes))
    lanes, firsts, lengths = array("B", columns[0]), array("Q", columns[1]), array("I", columns[2])
    step: list[Run] = []
    room = most
    for lane, first, length in zip(lanes, firsts, lengths, strict=True):
        while length:
            count = min(length, room)
            step.append(Run(lane, first, count))
            first, length, room = first + count, length - count, room - count  # noqa: PLW2901 - the rest of the run.
            if not room:
                yield step
                step, room = [], most
    if step:
        yield step
