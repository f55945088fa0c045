"""Single records, for people: a few of them to a batch, and a batch to its records.

Programs speak Kafka, and their batches pass through whole. A person who looks at a topic
with a browser, or tries it with curl, sees records one by one, and comes here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.log.record import COMPRESSION_MASK, HEADER_BYTES, BadBatch, header, read_bytes, read_varint, seal, varint
from penstock.streams.compression import BadlyPacked, UnpackedTooLarge, UnsupportedCodec, unpack

_NONE = b"\x01"
# Bit 3 of the attributes: all records have the time of their arrival.
_APPEND_TIME = 0x08


@dataclass(frozen=True, slots=True)
class PlainRecord:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1
    at_ms: int = -1


def batch_of(records: Sequence[PlainRecord], *, at_ms: int) -> bytearray:
    """Return a batch as a producer would send it, all records of one instant."""
    parts: list[bytes] = []
    for delta, record in enumerate(records):
        body = b"".join((b"\0\0", varint(delta), _field(record.key), _field(record.value), _headers(record)))
        parts += (varint(len(body)), body)
    return seal(parts, count=len(records), at_ms=at_ms)


# What may be wrong with a batch that was not checked before: one of another build, or of a disk that was repaired.
UNREADABLE = (BadBatch, BadlyPacked, UnpackedTooLarge, UnsupportedCodec)


def records_of(batch: memoryview, *, unpacked_bytes_max: int) -> Iterator[PlainRecord]:
    """Iterate over the records of a batch. Raises what is `UNREADABLE`."""
    found = header(batch)
    packed = batch[HEADER_BYTES : found.size]
    codec = found.attributes & COMPRESSION_MASK
    view = unpack(codec, packed, bytes_max=unpacked_bytes_max) if codec else packed
    position = 0
    for _ in range(found.record_count):
        length, at = read_varint(view, position)
        end = at + length
        delta_ms, at = read_varint(view, at + 1)
        delta, at = read_varint(view, at)
        key, at = read_bytes(view, at)
        value, at = read_bytes(view, at)
        if not at < end <= len(view):
            raise BadBatch("a record does not end where it says")
        is_stamped = found.attributes & _APPEND_TIME
        at_ms = found.max_timestamp_ms if is_stamped else found.base_timestamp_ms + delta_ms
        yield PlainRecord(_copied(key), _copied(value), _read_headers(view, at), found.base_offset + delta, at_ms)
        position = end


def _field(value: bytes | None) -> bytes:
    return _NONE if value is None else varint(len(value)) + value


def _headers(record: PlainRecord) -> bytes:
    parts = [varint(len(record.headers))]
    for name, value in record.headers:
        parts += (_field(name.encode()), _field(value))
    return b"".join(parts)


def _read_headers(view: memoryview, at: int) -> tuple[tuple[str, bytes | None], ...]:
    count, at = read_varint(view, at)
    # Each takes two bytes at the least.
    if not 0 <= count <= len(view) - at:
        raise BadBatch(f"{count} headers are announced, more than the batch holds")
    found = []
    for _ in range(count):
        name, at = read_bytes(view, at)
        value, at = read_bytes(view, at)
        found.append((str(name or b"", "utf-8", "replace"), _copied(value)))
    return tuple(found)


def _copied(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)
