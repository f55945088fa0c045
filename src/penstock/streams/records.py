"""The records inside a batch, one by one: only for those who need keys or times of their own.

Nothing on the way of a produced or fetched batch comes here, but for compacted topics.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.log.record import COMPRESSION_MASK, HEADER_BYTES, BadBatch, Header, read_bytes, read_varint
from penstock.runtime.interface import Buffer
from penstock.streams.compression import unpack


class Entry(NamedTuple):
    """A record and where it lies among the unpacked ones of its batch."""

    start: int
    end: int
    offset_delta: int
    timestamp_delta_ms: int
    key: memoryview | None
    is_tombstone: bool


def unpacked(batch: Buffer, header: Header, *, bytes_max: int) -> memoryview:
    """Return the records of a batch as bytes; raises what `unpack` does."""
    packed = memoryview(batch)[HEADER_BYTES : header.size]
    codec = header.attributes & COMPRESSION_MASK
    return unpack(codec, packed, bytes_max=bytes_max) if codec else packed


def entries(records: memoryview, count: int) -> Iterator[Entry]:
    """Iterate over ``count`` records, which must be all there are. Raises `BadBatch`."""
    position = 0
    last_delta = -1
    for _ in range(count):
        length, at = read_varint(records, position)
        end = at + length
        timestamp_delta_ms, at = read_varint(records, at + 1)
        offset_delta, at = read_varint(records, at)
        key, at = read_bytes(records, at)
        value, at = read_bytes(records, at)
        # A length that leads back would have us read a small batch for ever.
        if not at < end <= len(records):
            raise BadBatch("a record does not end where it says")
        if offset_delta <= last_delta:
            raise BadBatch(f"offset delta {offset_delta} after {last_delta}")
        last_delta = offset_delta
        yield Entry(position, end, offset_delta, timestamp_delta_ms, key, value is None)
        position = end
    if position != len(records):
        raise BadBatch(f"{len(records) - position} bytes after the last record")
