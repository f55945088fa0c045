"""Rewrites closed segments of a compacted partition. Runs in a process of its own.

    closed segments:   clean, looked at before      not looked at yet
                      ├─────────────────────────┼────────────────────┤ upto
    1. of what was not looked at:  key ──▶ offset of its last record
    2. all of it is rewritten without the records that have a later one of their key,
       without tombstones that all readers have had time to see, and without records that
       have no key. Small segments become one.

It reads only closed segments, which never change, and writes files under names that
are not read, so it needs no lock, and a process that is killed leaves only such a file.

Laws of this file
-----------------
1. Every offset stays used up: a batch without some of its records says so
   (`THINNED_ATTRIBUTE`), and where nothing is left is a hole (`record.hole`). So
   offsets still follow each other without a gap, and a reader's position stays good.
2. A batch that loses nothing is copied as it is.
3. Memory is bounded: by the number of keys, then only what came before them is cleaned.
"""

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec
from crc32c import crc32c

from penstock.contract.limits import CLEANED_KEYS_MAX, UNPACKED_BYTES_MAX
from penstock.log.record import (
    COMPRESSION_MASK,
    CRC_FROM,
    HEAD_BYTES,
    HEADER,
    HEADER_BYTES,
    LENGTH_FROM,
    THINNED_ATTRIBUTE,
    BadBatch,
    Header,
    MarkerPosition,
    encode_marker,
    hole,
)
from penstock.log.segment import segment_name, walk
from penstock.runtime.interface import Buffer, Disk, File
from penstock.streams.compression import BadlyPacked, Entry, UnpackedTooLarge, UnsupportedCodec, entries, pack, unpacked

SUFFIX = ".cleaned"

_DIGEST_BYTES = 16
_CRC = struct.Struct(">I")
_CRC_AT = 17
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
    latest, upto = _latest(disk, order)
    rewritten: list[RewrittenSegment] = []
    first = 0
    while first < len(order.segments) and order.segments[first].base_offset < upto:
        file = Rewriting(disk, order, latest, upto).run(first)
        first += file.count
        if file.name:
            rewritten.append(file)
    return msgspec.msgpack.encode(CompactionResult(rewritten, upto))


def remove_left_over(disk: Disk, folder: str) -> None:
    """Remove what a cleaning that was cut short has left."""
    for name in disk.names(folder):
        if name.endswith(SUFFIX):
            disk.remove(f"{folder}/{name}")


def _latest(disk: Disk, order: CompactionRequest) -> tuple[dict[bytes, int], int]:
    """Return the last offset of each key that came since the last cleaning, and up to where that was looked at."""
    latest: dict[bytes, int] = {}
    upto = order.cleaned_offset
    for segment in order.segments:
        if segment.next_offset <= order.cleaned_offset:
            continue
        for header, batch in _batches(disk, order.folder, segment):
            if header.next_offset <= order.cleaned_offset:
                continue
            if len(latest) >= order.keys_max:
                return latest, upto
            _, found = _records(header, batch)
            for entry in found or ():
                if entry.key is not None:
                    latest[_digest(entry.key)] = header.base_offset + entry.offset_delta
            upto = header.next_offset
    return latest, upto


class Rewriting:
    """Writes one file that may take the place of some segments."""

    def __init__(self, disk: Disk, order: CompactionRequest, latest: dict[bytes, int], upto: int) -> None:
        self._disk = disk
        self._order = order
        self._latest = latest
        self._upto = upto
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
        return following.base_offset < self._upto and is_narrow

    def _take(self, header: Header, batch: memoryview) -> None:
        if header.is_hole:
            self._skip(header)
            return
        if header.base_offset >= self._upto:
            self._write(header, batch)
            return
        records, found = _records(header, batch)
        kept = [entry for entry in found or () if self._is_kept(header, entry)]
        if found is None or len(kept) == len(found):
            self._write(header, batch)
            return
        self._has_changed = True
        if kept:
            self._write(header, thinned(header, records, kept))
        else:
            self._skip(header)

    def _is_kept(self, header: Header, entry: Entry) -> bool:
        offset = header.base_offset + entry.offset_delta
        if offset >= self._upto:
            return True
        if entry.key is None or (entry.is_tombstone and offset < self._order.tombstones_before):
            return False
        return offset >= self._latest.get(_digest(entry.key), offset)

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


def thinned(header: Header, records: memoryview, kept: Sequence[Entry]) -> bytearray:
    """Return a batch with some of its records only; the offsets of all of them stay used up."""
    codec = header.attributes & COMPRESSION_MASK
    body = pack(codec, b"".join(records[entry.start : entry.end] for entry in kept))
    attributes = header.attributes | THINNED_ATTRIBUTE
    fields = header._replace(
        length=HEADER_BYTES - LENGTH_FROM + len(body), attributes=attributes, record_count=len(kept)
    )
    batch = bytearray(HEADER.pack(*fields)) + body
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return batch


def _batches(disk: Disk, folder: str, segment: ClosedSegment) -> Iterator[tuple[Header, memoryview]]:
    file = disk.open(f"{folder}/{segment_name(segment.base_offset)}", must_exist=True)
    try:
        for _, header, batch in walk(file, 0, segment.size_bytes):
            if not header.is_marker:
                yield header, batch
    finally:
        file.close()


def _records(header: Header, batch: memoryview) -> tuple[memoryview, list[Entry] | None]:
    """Return the records of a batch, unpacked; None if they cannot be read.

    From before the topic was compacted there may be some that were not checked. They stay.
    """
    if header.is_hole:
        return batch[:0], []
    try:
        records = unpacked(batch, header, bytes_max=UNPACKED_BYTES_MAX)
        return records, list(entries(records, header.record_count))
    except (BadBatch, BadlyPacked, UnpackedTooLarge, UnsupportedCodec):
        return batch[:0], None


def _digest(key: memoryview) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
