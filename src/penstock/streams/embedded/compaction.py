"""Rewrites closed segments of a compacted partition. Runs in a process of its own.

    1. what no cleaning has looked at is looked at (`streams.compaction`)
    2. all of it is rewritten without the records that go. Small segments become one.

It reads only closed segments, which never change, and writes files under names that
are not read, so it needs no lock, and a process that is killed leaves only such a file.
"""

from collections.abc import Iterator

import msgspec

from penstock.contract.limits import CLEANED_KEYS_MAX
from penstock.log.record import HEAD_BYTES, Header, MarkerPosition, encode_marker, hole
from penstock.log.record import header as read_header
from penstock.log.segment import segment_name, walk
from penstock.runtime.interface import Buffer, Disk, File
from penstock.streams.compaction import LatestRecords

SUFFIX = ".cleaned"

# An index of a segment counts offsets from its first in 32 bits.
_OFFSETS_MAX = 2**32 - 1


class ClosedSegment(msgspec.Struct, frozen=True):
    base_offset: int
    next_offset: int
    size_bytes: int


class CompactionRequest(msgspec.Struct, frozen=True):
    """What to clean."""

    folder: str
    log_id: int
    segments: list[ClosedSegment]
    # An earlier cleaning has looked at everything below.
    cleaned_offset: int
    # Tombstones below have been there long enough.
    tombstones_before: int
    segment_bytes_max: int
    keys_max: int = CLEANED_KEYS_MAX


class RewrittenSegment(msgspec.Struct, frozen=True):
    """A durable file that may take the place of some segments."""

    name: str
    # Of the segments of the order: from which on, and how many.
    first: int
    count: int
    size_bytes: int
    max_timestamp_ms: int


class CompactionResult(msgspec.Struct, frozen=True):
    """What came of it."""

    rewritten: list[RewrittenSegment]
    cleaned_offset: int


def clean(disk: Disk, request: bytes) -> bytes:
    """Carry out a `CompactionRequest`; returns a `CompactionResult`."""
    order = msgspec.msgpack.decode(request, type=CompactionRequest)
    remove_left_over(disk, order.folder)
    latest = _latest(disk, order)
    rewritten: list[RewrittenSegment] = []
    first = 0
    while first < len(order.segments) and order.segments[first].base_offset < latest.upto:
        file = Rewriting(disk, order, latest).run(first)
        first += file.count
        if file.name:
            rewritten.append(file)
    return msgspec.msgpack.encode(CompactionResult(rewritten, latest.upto))


def remove_left_over(disk: Disk, folder: str) -> None:
    """Remove what a cleaning that was cut short has left."""
    for name in disk.names(folder):
        if name.endswith(SUFFIX):
            disk.remove(f"{folder}/{name}")


def _latest(disk: Disk, order: CompactionRequest) -> LatestRecords:
    """Look at what came since the last cleaning, as much as there is memory for."""
    latest = LatestRecords(order.cleaned_offset, tombstones_before=order.tombstones_before, keys_max=order.keys_max)
    for segment in order.segments:
        if segment.next_offset > order.cleaned_offset:
            for header, batch in _batches(disk, order.folder, segment):
                if not latest.look(header, batch):
                    return latest
    return latest


class Rewriting:
    """Writes one file that may take the place of some segments."""

    def __init__(self, disk: Disk, order: CompactionRequest, latest: LatestRecords) -> None:
        self._disk = disk
        self._order = order
        self._latest = latest
        self._position = 0
        self._heads: list[bytes] = []
        self._max_timestamp_ms = -(2**63)
        # The first offset of a gap, and where it ends.
        self._gap: tuple[int, int] | None = None
        self._has_changed = False
        self._file: File

    def run(self, first: int) -> RewrittenSegment:
        """Rewrite segments from this one on, until the file is large enough. No name: it would be no other file."""
        order = self._order
        name = segment_name(order.segments[first].base_offset).removesuffix(".log") + SUFFIX
        path = f"{order.folder}/{name}"
        self._file = self._disk.open(path)
        count = 0
        try:
            while self._takes_more(first, count):
                for header, batch in _batches(self._disk, order.folder, order.segments[first + count]):
                    self._take(header, batch)
                count += 1
            self._finish(order.segments[first + count - 1].next_offset)
        finally:
            self._file.close()
        if count == 1 and not self._has_changed:
            self._disk.remove(path)
            name = ""
        return RewrittenSegment(name, first, count, self._position, self._max_timestamp_ms)

    def _takes_more(self, first: int, count: int) -> bool:
        """Whether another segment goes into the file: it may exceed the size of a segment by half."""
        if count == 0:
            return True
        segments = self._order.segments
        if first + count == len(segments) or self._position > self._order.segment_bytes_max // 2:
            return False
        following = segments[first + count]
        is_narrow = following.next_offset - segments[first].base_offset <= _OFFSETS_MAX
        return following.base_offset < self._latest.upto and is_narrow

    def _take(self, header: Header, batch: memoryview) -> None:
        if header.is_hole:
            self._skip(header)
            return
        rest = self._latest.rest(header, batch)
        self._has_changed = self._has_changed or rest is not batch
        if rest is None:
            self._skip(header)
        else:
            self._write(read_header(rest), rest)

    def _skip(self, header: Header) -> None:
        first = header.base_offset if self._gap is None else self._gap[0]
        self._gap = first, header.next_offset

    def _write(self, header: Header, batch: Buffer) -> None:
        self._fill_gap()
        self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp_ms)
        self._put(batch)

    def _fill_gap(self) -> None:
        if self._gap is not None:
            first, end = self._gap
            self._gap = None
            self._put(hole(first, end))

    def _put(self, batch: Buffer) -> None:
        self._file.write(batch, self._position)
        self._heads.append(bytes(batch[:HEAD_BYTES]))
        self._position += len(batch)

    def _finish(self, next_offset: int) -> None:
        """Close the file with a marker, as a log does, and make it durable."""
        self._fill_gap()
        place = MarkerPosition(next_offset - 1, self._position)
        marker = encode_marker(place, durable_bytes=self._position, log_id=self._order.log_id, heads=self._heads)
        self._file.write(marker, self._position)
        self._position += len(marker)
        self._file.sync()


def _batches(disk: Disk, folder: str, segment: ClosedSegment) -> Iterator[tuple[Header, memoryview]]:
    file = disk.open(f"{folder}/{segment_name(segment.base_offset)}", must_exist=True)
    try:
        for _, header, batch in walk(file, 0, segment.size_bytes):
            if not header.is_marker:
                yield header, batch
    finally:
        file.close()
