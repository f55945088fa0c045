"""Reads whole, checked batches out of segments.

Bytes come by `pread`, never by `mmap`: a bad sector is then an exception that
names a file, not a SIGBUS that ends the process (decision 0005). What is in the
kernel's memory is read on the event loop; what is not, off it.
"""

import struct
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from penstock.log.record import HEADER_BYTES, LEADER_EPOCH, LENGTH_FROM, MARKER_ATTRIBUTE, BadBatch, Header, check
from penstock.log.record import header as read_header
from penstock.log.recovery import LogCorrupted, load_index, rebuild_index
from penstock.log.segment import Index, Segment, batch_size, segment_name, walk
from penstock.log.settings import LogSettings
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import Buffer, File, Runtime

T = TypeVar("T")

# Base offset, length, (epoch, version, CRC,) attributes, last offset delta.
_GLANCE = struct.Struct(">qi9xhi")


class Misled(Exception):
    """The index pointed to a place where the wanted batch is not."""


@dataclass(slots=True)
class OpenSegment:
    """A segment that can be read. `end_bytes` grows while it is active."""

    base_offset: int
    file: File
    index: Index
    end_bytes: int
    is_active: bool = False
    # Reads under way. The file is closed only when there are none.
    users: int = 0
    is_retired: bool = False

    def release(self) -> None:
        self.users -= 1
        self._close_if_unused()

    def retire(self) -> None:
        self.is_retired = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self.is_retired and self.users == 0:
            self.file.close()


class Reader:
    """The segments of one log that are open for reading. Lives on the event loop."""

    def __init__(self, runtime: Runtime, folder: str, settings: LogSettings) -> None:
        self._runtime = runtime
        self._folder = folder
        self._settings = settings
        self._open: OrderedDict[int, OpenSegment] = OrderedDict()

    async def open_closed(self, segment: Segment) -> OpenSegment:
        """Return a closed segment, opened if need be. The caller must `release` it."""
        found = self._open.get(segment.base_offset)
        if found is None:
            opened = await self._off_loop(lambda: self._open_now(segment))
            found = self._open.setdefault(segment.base_offset, opened)
            if found is not opened:
                opened.file.close()
        self._open.move_to_end(segment.base_offset)
        found.users += 1
        self._retire_oldest()
        return found

    def keep(self, segment: OpenSegment) -> None:
        """Take over a segment that has just been closed."""
        self._open[segment.base_offset] = segment
        self._retire_oldest()

    def forget(self, base_offset: int) -> None:
        found = self._open.pop(base_offset, None)
        if found is not None:
            found.retire()

    def close(self) -> None:
        for base_offset in list(self._open):
            self.forget(base_offset)

    def _retire_oldest(self) -> None:
        while len(self._open) > self._settings.open_segments_max:
            _, oldest = self._open.popitem(last=False)
            oldest.retire()

    def _open_now(self, segment: Segment) -> OpenSegment:
        # A segment may be dropped on the way here; opening it must not bring its name back.
        file = self._runtime.disk.open(f"{self._folder}/{segment_name(segment.base_offset)}", must_exist=True)
        index = load_index(self._runtime, self._folder, segment.base_offset, file, self._settings)
        # Not the size that is known: the file may have been replaced just now.
        return OpenSegment(segment.base_offset, file, index, file.size())

    async def read(self, source: OpenSegment, offset: int, bytes_max: int) -> list[memoryview]:
        """Return whole batches from the one holding ``offset`` on; at least one."""
        return await self._led(source, offset, lambda: self._read_from(source, offset, bytes_max))

    async def fronts(self, source: OpenSegment, offset: int, *, most: int, front_bytes: int) -> list[bytes]:
        """Return the first bytes of batches, from the one holding ``offset`` on; unchecked except for their order."""

        def work() -> list[bytes]:
            return list(_fronts(source, offset, most=most, front_bytes=front_bytes))

        return await self._led(source, offset, lambda: self._off_loop(work))

    async def _led(self, source: OpenSegment, offset: int, work: "Callable[[], Awaitable[T]]") -> T:
        """Do what the index leads to, and once more with a new index if it misled."""
        try:
            return await work()
        except Misled as error:
            if source.is_active:
                # Its index was never on disk: it is the segment that is wrong.
                raise self._corrupted(source, source.index.entry_of(offset)[1], offset, str(error)) from None
            source.index = await self._off_loop(
                lambda: rebuild_index(self._runtime, self._folder, source.base_offset, source.file, self._settings)
            )
        try:
            return await work()
        except Misled as error:
            raise self._corrupted(source, source.index.entry_of(offset)[1], offset, str(error)) from None

    async def _read_from(self, source: OpenSegment, offset: int, bytes_max: int) -> list[memoryview]:
        known_offset, position = source.index.entry_of(offset)
        if position >= source.end_bytes:
            raise Misled("the index points beyond the segment")
        # The walk from the indexed batch to the wanted one comes on top of what was asked for.
        size = min(bytes_max + self._settings.index_every_bytes, source.end_bytes - position)
        while True:
            window = await self._bytes(source, position, size)
            skipped = _skip(window, known_offset, offset)
            needed = skipped + batch_size(window, skipped)
            if needed <= len(window):
                break
            if position + needed > source.end_bytes or len(window) < size:
                raise Misled("the batch ends beyond the segment")
            size = needed
        try:
            return _take(window, skipped, bytes_max)
        except BadBatch as error:
            raise self._corrupted(source, position + skipped, offset, str(error)) from None

    async def _bytes(self, source: OpenSegment, position: int, size: int) -> memoryview:
        try:
            data: Buffer | None = source.file.read_cached(position, size)
            if data is None:
                data = await self._off_loop(lambda: source.file.read(position, size))
        except FileNotFoundError:
            # Its place was taken, or it was dropped: the log knows.
            raise
        except OSError as error:
            raise self._corrupted(source, position, None, f"it cannot be read: {error.strerror}") from error
        return memoryview(data).toreadonly()

    async def offset_at(self, source: OpenSegment, timestamp_ms: int) -> int:
        """Return the offset of the first batch of a segment with a timestamp this late."""

        def work() -> int:
            for _, header, _ in walk(source.file, source.index.position_at(timestamp_ms), source.end_bytes):
                if not header.is_marker and header.max_timestamp_ms >= timestamp_ms:
                    return header.base_offset
            return source.index.last()[0]

        return await self._off_loop(work)

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await off_loop(self._runtime.workers, work)

    def _corrupted(self, source: OpenSegment, position: int, offset: int | None, reason: str) -> LogCorrupted:
        return LogCorrupted(
            f"{self._folder}/{segment_name(source.base_offset)}", reason, position=position, offset=offset
        )


def _skip(window: memoryview, expected: int, offset: int) -> int:
    """Return where in ``window`` the batch holding ``offset`` begins, or the last place that could be reached.

    No CRC covers a base offset, so each must follow from the one before, and the
    first, ``expected``, from the index: else a neighbour could be taken for the batch.
    """
    at = 0
    while at + _GLANCE.size <= len(window):
        base_offset, length, attributes, last_delta = _GLANCE.unpack_from(window, at)
        if length < 0:
            raise Misled(f"a length of {length} bytes")
        if not attributes & MARKER_ATTRIBUTE:
            if base_offset != expected or base_offset > offset:
                raise Misled(f"base offset {base_offset} where {expected} belongs")
            expected = base_offset + last_delta + 1
            if expected > offset:
                return at
        at += LENGTH_FROM + length
    return at


def _fronts(source: OpenSegment, offset: int, *, most: int, front_bytes: int) -> Iterator[bytes]:
    """Step from batch to batch without reading what is in them."""
    expected, position = source.index.entry_of(offset)
    found = 0
    while position < source.end_bytes and found < most:
        front = source.file.read(position, min(max(front_bytes, HEADER_BYTES), source.end_bytes - position))
        if len(front) < HEADER_BYTES:
            raise Misled("a header ends beyond the segment")
        header = read_header(front)
        if header.length < HEADER_BYTES - LENGTH_FROM:
            raise Misled(f"a length of {header.length} bytes")
        position += header.size
        if header.is_marker:
            continue
        if header.base_offset != expected or header.next_offset <= expected:
            raise Misled(f"base offset {header.base_offset} where {expected} belongs")
        expected = header.next_offset
        if expected > offset:
            found += 1
            yield front


def _take(window: memoryview, at: int, bytes_max: int) -> list[memoryview]:
    """Return the checked batches of ``window`` from ``at`` on that fit into ``bytes_max``; at least one."""
    taken: list[memoryview] = []
    total = 0
    expected: int | None = None
    while at < len(window) and at + (size := batch_size(window, at)) <= len(window):
        if taken and total + size > bytes_max:
            break
        header = check(window, at)
        if not header.is_marker:
            _check_head(header, expected)
            taken.append(window[at : at + size])
            total += size
            expected = header.next_offset
        at += size
    assert taken, "the caller has seen that one batch fits"
    return taken


def _check_head(header: Header, expected: int | None) -> None:
    """Check what the CRC leaves out: the offset follows, and the epoch is the one that every batch has."""
    if expected is not None and header.base_offset != expected:
        raise BadBatch(f"base offset {header.base_offset} where {expected} belongs")
    if header.epoch != LEADER_EPOCH:
        raise BadBatch(f"leader epoch {header.epoch} where {LEADER_EPOCH} belongs")
