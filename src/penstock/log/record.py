"""The record batch: the one format of everything that is logged.

It is Kafka's batch of version 2, big-endian, so a stream's batches are stored
and served as they came:

     0        8       12      16  17     21          23               27
    ┌────────┬───────┬───────┬───┬──────┬───────────┬────────────────┬─ ─ ─
    │ base   │length │leader │ 2 │CRC-  │attributes │last offset     │
    │ offset │       │epoch  │   │32C   │           │delta           │
    └────────┴───────┴───────┴───┴──────┴───────────┴────────────────┴─ ─ ─
    27         35         43          51        53         57        61
   ─ ─ ─┬─────────┬──────────┬───────────┬─────────┬──────────┬────────┬─ ─ ─
        │ base    │ max      │ producer  │producer │ base     │ record │records
        │timestamp│timestamp │ id        │epoch    │ sequence │ count  │
   ─ ─ ─┴─────────┴──────────┴───────────┴─────────┴──────────┴────────┴─ ─ ─

`length` counts what follows it. The CRC covers everything from `attributes` on,
so the log may write base offset and leader epoch over without computing it
again. What the CRC leaves out, the commit marker covers.

A record: length, attributes, timestamp delta, offset delta, key length, key,
value length, value, header count, headers; all numbers but the attributes are
zigzag varints, and a length of -1 means "none".

Not done here: compression. A compressed batch passes through as it came.

The commit marker
-----------------
It is what makes a torn tail and a damaged middle two different things. Each commit ends
with one: an empty batch with an attribute of our own, whose idle fields carry what
recovery needs to know:

    base offset      last offset of the commit: a marker uses up no offset
    base timestamp   position in this segment known durable when this was written
    max timestamp    position of the marker itself
    producer id      the log's id: random, so that no message body can pose as a
                     marker, and a segment of another log is recognised
    producer epoch   version of the marker
    base sequence    CRC-32C over the heads of the commit's batches and of the
                     marker: what Kafka's CRC leaves out, because brokers write
                     offset and epoch over

A bad batch at X is *damage* if a later marker says that more than X was
durable. Otherwise power was lost before anyone was told that X is safe.

Markers never leave the log: `DiskLog.read` returns batches without them.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from penstock.runtime.interface import Buffer

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
assert HEADER_BYTES == 61

# The part of the header the CRC does not cover, without the version and the CRC itself.
HEAD = struct.Struct(">qii")
HEAD_BYTES = HEAD.size

VERSION = 2
# The log writes it over the epoch of every batch: there is one leader.
LEADER_EPOCH = 0
LENGTH_FROM = 12  # `length` counts the bytes from here on.
CRC_FROM = 21

COMPRESSION_MASK = 0x07
# Attributes Kafka leaves unused. Front ends refuse them from clients.
MARKER_ATTRIBUTE = 0x4000
HOLE_ATTRIBUTE = 0x2000
THINNED_ATTRIBUTE = 0x1000

_CRC_AT = struct.Struct(">I")
_FRONT = struct.Struct(">qiibI")
_TAIL = struct.Struct(">hiqqqhii")
assert _FRONT.size + _TAIL.size == HEADER_BYTES
_BLANK = bytes(_FRONT.size)
# A length of -1: there is no key, or no value.
_NONE = b"\x01"
# Of a record alone in its batch: attributes, timestamp delta, offset delta and header count.
_LONE_BYTES = 4
# What `length` counts of the front.
_CRC_TO = CRC_FROM - LENGTH_FROM
_SMALL = tuple(bytes([number]) for number in range(0x80))
# Shorter lengths are one byte of `_SMALL` each.
_SHORT_BYTES = 0x40
MARKER_BYTES = HEADER_BYTES
MARKER_VERSION = 1
LOG_ID_AT = 43
_VERSION_AND_CRC = struct.Struct(">bI")
_COUNT = struct.Struct(">i")
_COUNT_AT = HEADER_BYTES - _COUNT.size
assert HEAD.size + _VERSION_AND_CRC.size == CRC_FROM


class BadBatch(Exception):
    """These bytes are not a whole, undamaged batch."""


class UnknownVersion(Exception):
    """A batch was written by another version of the format. This one cannot read it."""


class Header(NamedTuple):
    base_offset: int
    length: int
    epoch: int
    version: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return LENGTH_FROM + self.length

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_marker(self) -> bool:
        return bool(self.attributes & MARKER_ATTRIBUTE)

    @property
    def is_hole(self) -> bool:
        """Whether damage, or all that was out of date, was cut out here: the offsets are used up, the records gone."""
        return bool(self.attributes & HOLE_ATTRIBUTE)

    @property
    def is_thinned(self) -> bool:
        """Whether some records, but not all, were taken out: it has fewer than it uses up offsets."""
        return bool(self.attributes & THINNED_ATTRIBUTE)


def record_count(batch: Buffer) -> int:
    """Return how many records a batch has, without reading the rest of its header."""
    count: int = _COUNT.unpack_from(batch, _COUNT_AT)[0]
    return count


class Record(NamedTuple):
    key: memoryview | None
    value: memoryview | None
    timestamp_delta_ms: int = 0


class Producer(NamedTuple):
    """Who sent a batch and as which in a row: how a retried one is known."""

    id: int = -1
    epoch: int = -1
    sequence: int = -1


NO_PRODUCER = Producer()


def encode(
    records: Sequence[tuple[bytes | None, Buffer | None]], *, at_ms: int, producer: Producer = NO_PRODUCER
) -> bytearray:
    """Return a batch of (key, value) records, all of one instant; base offset and epoch are still 0."""
    assert records
    key, value = records[0]
    if key is not None and len(records) == 1 and producer is NO_PRODUCER:
        return encode_one(key, value, at_ms=at_ms)
    return encode_all(records, at_ms=at_ms, producer=producer)


def encode_one(key: bytes, value: Buffer | None, *, at_ms: int) -> bytearray:
    """Return what `encode_all` does of one record that has a key and no producer, for half the price.

    Nearly every batch of a journal is such a one. The value is copied once: the
    CRC goes over the parts, one after the other.
    """
    tail, key_bytes = _TAIL.pack(0, 0, at_ms, at_ms, -1, -1, -1, 1), len(key)
    # Most keys are short: a call of `varint` costs as much as a part of the rest.
    keyed = _SMALL[key_bytes << 1] if key_bytes < _SHORT_BYTES else varint(key_bytes)
    if value is None:
        size = _LONE_BYTES + len(keyed) + key_bytes + 1
        rest = b"".join((tail, varint(size), b"\0\0\0", keyed, key, b"\x01\0"))
        return bytearray().join((_FRONT.pack(0, _CRC_TO + len(rest), 0, VERSION, crc32c(rest)), rest))
    value_bytes = len(value)
    valued = varint(value_bytes)
    size = _LONE_BYTES + len(keyed) + key_bytes + len(valued) + value_bytes
    rest = b"".join((tail, varint(size), b"\0\0\0", keyed, key, valued))
    crc = crc32c(b"\0", crc32c(value, crc32c(rest)))
    front = _FRONT.pack(0, _CRC_TO + len(rest) + value_bytes + 1, 0, VERSION, crc)
    return bytearray().join((front, rest, value, b"\0"))


def encode_all(records: Sequence[tuple[bytes | None, Buffer | None]], *, at_ms: int, producer: Producer) -> bytearray:
    """Do what `encode` does for any number of records and any producer."""
    parts: list[Buffer] = []
    for delta, (key, value) in enumerate(records):
        keyed = _NONE if key is None else varint(len(key)) + key
        if value is None:
            front = b"".join((b"\0\0", varint(delta), keyed, _NONE, b"\0"))
            parts += (varint(len(front)), front)
        else:
            front = b"".join((b"\0\0", varint(delta), keyed, varint(len(value))))
            parts += (varint(len(front) + len(value) + 1), front, value, b"\0")
    return seal(parts, count=len(records), at_ms=at_ms, producer=producer)


def seal(
    parts: Sequence[Buffer], *, count: int, at_ms: int, producer: Producer = NO_PRODUCER, attributes: int = 0
) -> bytearray:
    """Put a header with its CRC before encoded records."""
    tail = _TAIL.pack(attributes, count - 1, at_ms, at_ms, *producer, count)
    batch = bytearray().join((_BLANK, tail, *parts))
    _FRONT.pack_into(batch, 0, 0, len(batch) - LENGTH_FROM, 0, VERSION, crc32c(memoryview(batch)[CRC_FROM:]))
    return batch


def hole(first_offset: int, next_offset: int) -> bytes:
    """Return an empty batch that uses up offsets whose records are lost for good."""
    assert next_offset > first_offset
    tail = _TAIL.pack(HOLE_ATTRIBUTE, next_offset - first_offset - 1, -1, -1, *NO_PRODUCER, 0)
    return _FRONT.pack(first_offset, HEADER_BYTES - LENGTH_FROM, LEADER_EPOCH, VERSION, crc32c(tail)) + tail


def header(buffer: Buffer, position: int = 0) -> Header:
    """Read a header without judging it."""
    return Header._make(HEADER.unpack_from(buffer, position))


def check(buffer: Buffer, position: int = 0) -> Header:
    """Return the header of the batch at ``position`` if all of it is there and undamaged.

    Raises `BadBatch`, or `UnknownVersion` if only the version is strange. Where
    the offsets should be is the caller's to know.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise BadBatch("fewer bytes than a header")
    found = header(buffer, position)
    if not HEADER_BYTES - LENGTH_FROM <= found.length <= len(buffer) - position - LENGTH_FROM:
        raise BadBatch(f"a length of {found.length} bytes does not fit")
    body = memoryview(buffer)[position + CRC_FROM : position + found.size]
    if crc32c(body) != found.crc:
        raise BadBatch("the CRC-32C does not match")
    if found.version != VERSION:
        raise UnknownVersion(f"record version {found.version}; this is for version {VERSION}")
    if found.last_offset_delta < 0:
        raise BadBatch("a batch that uses up no offset")
    expected = 0 if found.is_marker or found.is_hole else found.last_offset_delta + 1
    if found.record_count != expected and not (found.is_thinned and 0 < found.record_count < expected):
        raise BadBatch(f"{found.record_count} records where the offsets say {expected}")
    return found


def records(batch: Buffer) -> Iterator[Record]:
    """Iterate over the records of a checked, uncompressed batch. Keys and values are views into it."""
    found = header(batch)
    assert not found.attributes & COMPRESSION_MASK, "compressed batches pass through unread"
    view = memoryview(batch)[: found.size]
    position = HEADER_BYTES
    for _ in range(found.record_count):
        length, position = read_varint(view, position)
        end = position + length
        timestamp_delta_ms, at = read_varint(view, position + 1)
        _, at = read_varint(view, at)
        key, at = read_bytes(view, at)
        value, at = read_bytes(view, at)
        # The CRC is the producer's own. A length that leads back would have us read a small batch for ever.
        if not at < end <= len(view):
            raise BadBatch("a record does not end where it says")
        yield Record(key, value, timestamp_delta_ms)
        position = end


def first_key(front: Buffer) -> memoryview | None:
    """Return the key of the first record of a batch of which only the first bytes are there."""
    view = memoryview(front)
    _, at = read_varint(view, HEADER_BYTES)
    _, at = read_varint(view, at + 1)
    _, at = read_varint(view, at)
    return read_bytes(view, at)[0]


def varint(number: int) -> bytes:
    """Zigzag: small numbers of either sign take few bytes."""
    rest = number << 1 if number >= 0 else ((-number) << 1) - 1
    if rest < 0x80:
        return _SMALL[rest]
    if rest < 0x4000:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    rest = shift = 0
    while True:
        if position >= len(view) or shift > 63:
            raise BadBatch("a number runs past its end")
        byte = view[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            return rest >> 1 ^ -(rest & 1), position
        shift += 7


def read_bytes(view: memoryview, position: int) -> tuple[memoryview | None, int]:
    length, position = read_varint(view, position)
    if length < 0:
        return None, position
    if position + length > len(view):
        raise BadBatch("a key or value runs past its batch")
    return view[position : position + length], position + length


class Marker(NamedTuple):
    durable_bytes: int
    position: int
    log_id: int
    version: int
    heads_crc: int


class MarkerPosition(NamedTuple):
    """Where a marker stands: after which record, at which byte."""

    last_offset: int
    position: int


def encode_marker(place: MarkerPosition, *, durable_bytes: int, log_id: int, heads: Iterable[Buffer]) -> bytes:
    """Return the marker that closes a commit of batches with these ``heads``."""
    assert 0 <= durable_bytes <= place.position
    assert place.last_offset >= 0
    head = HEAD.pack(place.last_offset, HEADER_BYTES - LENGTH_FROM, LEADER_EPOCH)
    crc = heads_crc(heads, head)
    signed_crc = crc - (1 << 32) if crc >= 1 << 31 else crc
    tail = _TAIL.pack(MARKER_ATTRIBUTE, 0, durable_bytes, place.position, log_id, MARKER_VERSION, signed_crc, 0)
    return b"".join((head, _VERSION_AND_CRC.pack(VERSION, crc32c(tail)), tail))


def decode_marker(header: Header) -> Marker:
    """Read the marker out of a checked header."""
    assert header.is_marker
    return Marker(
        durable_bytes=header.base_timestamp_ms,
        position=header.max_timestamp_ms,
        log_id=header.producer_id,
        version=header.producer_epoch,
        heads_crc=header.base_sequence & 0xFFFFFFFF,
    )


def heads_crc(heads: Iterable[Buffer], own_head: Buffer) -> int:
    return crc32c(b"".join((*heads, own_head)))
