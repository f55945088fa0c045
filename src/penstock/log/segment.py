"""One file of batches, named by its first offset.

    00000000000000000000.log   batches and commit markers, back to back
                        .index, .timeindex   where to find them (`Index`)

A segment is *active* while the log writes to it and *closed* ever after. A
closed segment is wholly durable: the log syncs it before the manifest names the
next one. So damage in a closed segment is never a torn tail.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.contract.limits import BATCH_BYTES_MAX, MIB
from penstock.log.record import (
    HEADER_BYTES,
    LENGTH_FROM,
    LOG_ID_AT,
    MARKER_BYTES,
    BadBatch,
    Header,
    UnknownVersion,
    check,
    decode_marker,
)
from penstock.runtime.interface import File

SUFFIX = ".log"
WINDOW_BYTES = 4 * MIB

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8


@dataclass(slots=True)
class Segment:
    """What is known of a segment without opening it."""

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp_ms: int


class BadAt(Exception):
    """There is no whole, undamaged batch at this position."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020}{SUFFIX}"


def index_names(base_offset: int) -> tuple[str, str]:
    return f"{base_offset:020}.index", f"{base_offset:020}.timeindex"


def base_offsets(names: list[str]) -> list[int]:
    """Return the first offsets of the segments among these file names, in order."""
    stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit())


def walk(file: File, start: int, end: int) -> Iterator[tuple[int, Header, memoryview]]:
    """Iterate over position, header and bytes of each batch and marker, checking all of them.

    Raises `BadAt` at the first that is cut short or damaged. ``start`` must be
    the beginning of a batch.
    """
    position = window_at = start
    window = memoryview(b"")
    while position < end:
        at = position - window_at
        if len(window) - at < min(batch_size(window, at), end - position):
            size = max(WINDOW_BYTES, batch_size(window, at))
            window, window_at, at = memoryview(file.read(position, min(size, end - position))), position, 0
            if len(window) < min(batch_size(window, 0), end - position):
                window = memoryview(file.read(position, min(batch_size(window, 0), end - position)))
        try:
            header = check(window, at)
        except BadBatch as error:
            raise BadAt(position, str(error)) from None
        yield position, header, window[at : at + header.size]
        position += header.size


def batch_size(window: memoryview, at: int) -> int:
    """Return how many bytes the batch at ``at`` claims, or a header's worth if that cannot be seen."""
    if len(window) - at < HEADER_BYTES:
        return HEADER_BYTES
    length: int = _LENGTH.unpack_from(window, at + _LENGTH_AT)[0]
    # An absurd length is left for `check` to refuse: it must not decide how much is read.
    return length + LENGTH_FROM if 0 <= length <= BATCH_BYTES_MAX else HEADER_BYTES


_NEVER = -(2**63)


class BadIndex(Exception):
    """These bytes are no index of this segment."""


class Index:
    __slots__ = ("base_offset", "every_bytes", "_offsets", "_positions", "_times", "max_timestamp_ms", "_next_at")

    def __init__(self, base_offset: int, every_bytes: int) -> None:
        self.base_offset = base_offset
        self.every_bytes = every_bytes
        self._offsets = array("I")
        self._positions = array("I")
        self._times = array("q")
        self.max_timestamp_ms = _NEVER
        # The position from which on the next batch gets an entry.
        self._next_at = 0

    def add(self, offset: int, position: int, timestamp_ms: int) -> None:
        """Take note of the batch at ``position``; batches come in order."""
        if position >= self._next_at:
            self._offsets.append(offset - self.base_offset)
            self._positions.append(position)
            self._times.append(self.max_timestamp_ms)
            self._next_at = position + self.every_bytes
        if timestamp_ms > self.max_timestamp_ms:  # noqa: PLR1730 - on the way of every append.
            self.max_timestamp_ms = timestamp_ms

    def entry_of(self, offset: int) -> tuple[int, int]:
        """Return offset and position of an indexed batch at or before the one holding ``offset``."""
        found = bisect_right(self._offsets, offset - self.base_offset) - 1
        if found < 0:
            return self.base_offset, 0
        return self.base_offset + self._offsets[found], self._positions[found]

    def position_at(self, timestamp_ms: int) -> int:
        """Return a position at or before the first batch with a timestamp this late."""
        found = bisect_left(self._times, timestamp_ms) - 1
        return self._positions[found] if found >= 0 else 0

    def last(self) -> tuple[int, int]:
        """Return offset and position of the last entry: where a walk to the end may begin."""
        if not self._offsets:
            return self.base_offset, 0
        return self.base_offset + self._offsets[-1], self._positions[-1]

    def cut(self, position: int, max_timestamp_ms: int) -> None:
        """Forget every entry at or after ``position``."""
        keep = bisect_left(self._positions, position)
        del self._offsets[keep:], self._positions[keep:], self._times[keep:]
        self.max_timestamp_ms = max_timestamp_ms
        self._next_at = self._positions[-1] + self.every_bytes if keep else 0

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Return the two files."""
        # The time of the end stands last, one entry more than there are offsets.
        times = self._times + array("q", [self.max_timestamp_ms])
        return self._offsets.tobytes() + self._positions.tobytes(), times.tobytes()

    @classmethod
    def from_bytes(cls, base_offset: int, every_bytes: int, files: tuple[bytes, bytes]) -> "Index":
        offsets_and_positions, times = files
        count, rest = divmod(len(offsets_and_positions), 8)
        if rest or len(times) != (count + 1) * 8:
            raise BadIndex("the two files do not belong together")
        index = cls(base_offset, every_bytes)
        index._offsets = _column("I", offsets_and_positions[: count * 4])
        index._positions = _column("I", offsets_and_positions[count * 4 :])
        index._times = _column("q", times)
        index.max_timestamp_ms = index._times.pop()
        if count:
            index._next_at = index._positions[-1] + every_bytes
        return index


def _column(code: str, data: bytes) -> "array[int]":
    column: array[int] = array(code)
    column.frombytes(data)
    return column


def first_kept_offset(
    segments: Sequence[Segment], *, now_ms: int, age_ms_max: int | None = None, bytes_max: int | None = None
) -> int:
    """Return the offset to give to `drop_before`.

    A segment is too old when its newest record is. The log is too large while it
    takes more than ``bytes_max``.
    """
    kept = 0
    total_bytes = sum(segment.size_bytes for segment in segments)
    for segment in segments[:-1]:
        is_old = age_ms_max is not None and segment.max_timestamp_ms < now_ms - age_ms_max
        is_too_much = bytes_max is not None and total_bytes > bytes_max
        if not is_old and not is_too_much:
            break
        kept += 1
        total_bytes -= segment.size_bytes
    return segments[kept].base_offset


def markers_from(file: File, start: int, end: int, log_id: int) -> Iterator[tuple[int, Header]]:
    """Iterate over position and header of the log's whole markers that stand where they say.

    Behind damage nothing can be found by its length, so markers are searched by
    the log's id, which no message body can contain but by a chance of 2^-63.
    """
    wanted = log_id.to_bytes(8, "big")
    position = start
    while position < end:
        window = file.read(position, min(WINDOW_BYTES, end - position))
        at = window.find(wanted)
        while at >= 0:
            header = _marker_at(window, at - LOG_ID_AT, position)
            if header is not None:
                yield position + at - LOG_ID_AT, header
            at = window.find(wanted, at + 1)
        if position + len(window) >= end:
            return
        position += len(window) - MARKER_BYTES + 1


def _marker_at(window: bytes, at: int, window_position: int) -> Header | None:
    if at < 0:
        return None
    try:
        header = check(window, at)
    except (BadBatch, UnknownVersion):
        return None
    return header if header.is_marker and decode_marker(header).position == window_position + at else None
