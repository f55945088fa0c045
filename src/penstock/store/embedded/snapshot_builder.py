"""Makes the next snapshot of a shard, and says what may be copied forward. Runs in a process of its own.

    previous snapshot ──▶ Memory ──▶ closed segments, event by event ──▶ next snapshot
                                                                            │
                            what is still live in the oldest segments ◀─────┘

It reads only what is durable and never changes: closed segments and finished
snapshots. So it needs no lock, and a process that is killed on the way leaves nothing
but an unfinished file.

**What is copied.** The journal can only be cut at its front. Of all fronts that
may go, the longest is chosen in which at most half of the bytes are live: each
byte that is copied frees at least one, and the journal stays within about twice
what is live in it.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec

from penstock.core.queue.listing import Stretch, live_runs
from penstock.log.segment import segment_name, walk
from penstock.runtime.interface import Disk
from penstock.store.embedded.body_index import BodyIndex, Columns, Lane
from penstock.store.embedded.shard_state import JournalEvent, ShardState, entries
from penstock.store.embedded.snapshot_file import SnapshotDamaged, load, save, set_aside

LIVE_SHARE_MAX = 0.5
# What a copied message takes besides its body. Without it, many tiny ones would never count as live, and be copied
# again and again.
ROW_BYTES = 16


class ClosedSegment(msgspec.Struct, frozen=True):
    base_offset: int
    next_offset: int
    size_bytes: int


class SnapshotRequest(msgspec.Struct, frozen=True):
    """What to build, and from what."""

    journal: str
    snapshots: str
    # The offset of the snapshot to begin with; None if there is none.
    previous: int | None
    # All closed segments, in order; those before the previous snapshot too, as far as they are still there.
    segments: list[ClosedSegment]
    # How many will be kept, the one to be built among them.
    snapshots_kept: int = 2
    # No more may be copied than this: a disk that is nearly full has room for little.
    copy_bytes_max: int | None = None

    @property
    def needed_from(self) -> int:
        """From where on the journal is needed: the oldest snapshot that is kept must still lead to the end."""
        return self.segments[-1].next_offset if self.snapshots_kept == 1 else self.previous or 0


class Forgotten(msgspec.Struct, frozen=True):
    """Which entries of a lane lead to nothing live: those below a number and, if most do, all but a few."""

    lowest: int
    # The number after the last one looked at, and the entries for what is live below it.
    upto: int
    columns: Columns | None


class SnapshotResult(msgspec.Struct):
    """What came of it."""

    # Of the new snapshot, which is durable.
    offset: int
    size_bytes: int
    # What of each lane is to be forgotten, by queue.
    lanes: dict[int, list["Forgotten"]]
    # Once what is live below is copied, the journal may be dropped up to here; 0 for nothing.
    drop_before: int
    # By queue, lane, first number, length: three columns, each as bytes of `array`.
    copies: dict[int, tuple[bytes, bytes, bytes]]


def build(disk: Disk, request: bytes) -> bytes:
    """Do what a `SnapshotRequest` says and return a `SnapshotResult`, both as MessagePack.

    Nothing is returned if there is nothing to begin with.
    A snapshot that has been damaged since it was written is set aside: the next
    order begins with the one before it.
    """
    order = msgspec.msgpack.decode(request, type=SnapshotRequest)
    since = order.previous or 0
    assert order.segments[0].base_offset <= since, "the journal must lead on from the snapshot"
    try:
        memory = ShardState() if order.previous is None else load(disk, order.snapshots, order.previous)
    except SnapshotDamaged:
        set_aside(disk, order.snapshots, [since])
        return b""
    for segment in order.segments:
        if segment.next_offset > since:
            for event, offset, size_bytes in _events(disk, order.journal, segment):
                if offset >= since:
                    memory.apply(event, offset, size_bytes)
    runs = {number: live_runs(queue.state) for number, queue in memory.queues.items()}
    forgotten = {
        number: [_forget(lane, found) for lane, found in zip(memory.places[number].lanes, lanes, strict=True)]
        for number, lanes in runs.items()
    }
    offset = order.segments[-1].next_offset
    size_bytes = save(disk, order.snapshots, memory, offset)
    if order.snapshots_kept == 1:
        # There will be no other to fall back upon: it is read before anything is dropped.
        load(disk, order.snapshots, offset)
    drop_before = _front(order, memory, runs)
    copies = {number: _copies(memory.places[number], lanes, drop_before) for number, lanes in runs.items()}
    return msgspec.msgpack.encode(
        SnapshotResult(
            offset, size_bytes, forgotten, drop_before, {number: found for number, found in copies.items() if found[0]}
        )
    )


def _events(disk: Disk, journal: str, segment: ClosedSegment) -> Iterator[JournalEvent]:
    file = disk.open(f"{journal}/{segment_name(segment.base_offset)}", must_exist=True)
    try:
        for _, header, batch in walk(file, 0, segment.size_bytes):
            if not header.is_marker:
                yield from entries(batch)
    finally:
        file.close()


def _forget(lane: Lane, runs: Sequence[Stretch]) -> Forgotten:
    """Let a lane lead to what is live only."""
    lowest = runs[0][0] if runs else lane.next
    if lane.is_sparse(runs):
        lane.compact(runs)
        return Forgotten(lowest, lane.next, lane.columns())
    lane.prune(lowest)
    return Forgotten(lowest, lane.next, None)


def _front(order: SnapshotRequest, memory: ShardState, runs: dict[int, list[list[Stretch]]]) -> int:
    """Choose up to where the journal may go."""
    segments = [segment for segment in order.segments if segment.next_offset <= order.needed_from]
    if not segments:
        return 0
    bases = [segment.base_offset for segment in segments]
    live = [0] * len(segments)
    for number, lanes in runs.items():
        for lane, found in zip(memory.places[number].lanes, lanes, strict=True):
            for first, record, count in _below(lane, found, order.needed_from):
                live[max(0, bisect_right(bases, record) - 1)] += count * (lane.mean_bytes(first) + ROW_BYTES)
    chosen = 0
    sizes = accumulate(segment.size_bytes for segment in segments)
    most = float("inf") if order.copy_bytes_max is None else order.copy_bytes_max
    for segment, size, kept in zip(segments, sizes, accumulate(live), strict=True):
        if kept <= min(size * LIVE_SHARE_MAX, most):
            chosen = segment.next_offset
    return chosen


def _below(lane: Lane, runs: Sequence[Stretch], offset: int) -> Iterator[tuple[int, int, int]]:
    """Live numbers whose bodies are in records before an offset: the first, its record, and how many."""
    for first, end in runs:
        number = first
        for span in lane.spans(first, end):
            if span.record < offset:
                yield number, span.record, span.length
            number += span.length


def _copies(places: BodyIndex, runs: Sequence[Sequence[Stretch]], offset: int) -> tuple[bytes, bytes, bytes]:
    lanes, firsts, lengths = array("B"), array("Q"), array("I")
    for tier, (lane, found) in enumerate(zip(places.lanes, runs, strict=True)):
        for number, _, length in _below(lane, found, offset):
            lanes.append(tier)
            firsts.append(number)
            lengths.append(length)
    return lanes.tobytes(), firsts.tobytes(), lengths.tobytes()
