"""Whether a produced batch may be stored as it came.

A stored batch is served to consumers byte for byte, so what is wrong with it must be
found here. The header and the CRC are checked of each; packed records are unpacked,
within a bound, and thrown away. The records themselves are looked at only where
something depends on them, which is the keys in a compacted topic: a look at each
would cost more than all else together.
"""

import struct

from crc32c import crc32c

from penstock.log.record import COMPRESSION_MASK, CRC_FROM, HEADER_BYTES, LENGTH_FROM, VERSION, BadBatch, Header
from penstock.log.record import header as read_header
from penstock.runtime.interface import Buffer
from penstock.streams.packing import BadlyPacked, unpack
from penstock.streams.records import entries
from penstock.streams.settings import TopicSettings

APPEND_TIME_ATTRIBUTE = 0x08
_TRANSACTION_ATTRIBUTES = 0x10 | 0x20
_KNOWN_ATTRIBUTES = COMPRESSION_MASK | APPEND_TIME_ATTRIBUTE | _TRANSACTION_ATTRIBUTES

_CRC = struct.Struct(">I")
_CRC_AT = 17
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35


class CorruptBatch(Exception):
    """These bytes are not a whole, undamaged record batch."""


class InvalidRecord(Exception):
    """The batch is undamaged, and yet not one that a producer may send."""


class KeylessRecord(InvalidRecord):
    """A record without a key, in a topic that keeps the last one of each key."""


class MessageTooLarge(Exception):
    """The batch is larger than the topic takes."""


class BadTimestamp(Exception):
    """The time of a record is not one that the topic takes."""


class TransactionsUnsupported(Exception):
    """The batch belongs to a transaction, or ends one; there are none here."""


def check_batch(batch: Buffer, settings: TopicSettings, now_ms: int) -> Header:
    """Return the header of a produced batch that may be stored; raises one of the above, or `UnsupportedCodec`."""
    if len(batch) > settings.message_bytes_max:
        raise MessageTooLarge(f"a batch of {len(batch)} bytes; message_bytes_max is {settings.message_bytes_max}")
    header = _whole(batch)
    _check_kind(header)
    if not settings.has_append_time:
        _check_time(header, settings, now_ms)
    codec = header.attributes & COMPRESSION_MASK
    if codec or settings.is_compacted:
        _check_records(batch, header, codec, settings)
    return header


def _whole(batch: Buffer) -> Header:
    if len(batch) < HEADER_BYTES:
        raise CorruptBatch(f"{len(batch)} bytes, fewer than a header has")
    header = read_header(batch)
    if header.version != VERSION:
        raise InvalidRecord(f"a batch of version {header.version}; only version {VERSION} is taken")
    size = header.length + LENGTH_FROM
    if HEADER_BYTES <= size < len(batch):
        raise InvalidRecord("more than one record batch for a partition")
    if size != len(batch):
        raise CorruptBatch(f"a length of {header.length} bytes does not fit")
    if crc32c(memoryview(batch)[CRC_FROM:]) != header.crc:
        raise CorruptBatch("the CRC-32C does not match")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(f"{header.record_count} records with a last offset delta of {header.last_offset_delta}")
    return header


def _check_kind(header: Header) -> None:
    if header.attributes & _TRANSACTION_ATTRIBUTES:
        raise TransactionsUnsupported("transactions are not supported")
    if header.attributes & ~_KNOWN_ATTRIBUTES:
        raise InvalidRecord(f"attributes {header.attributes & 0xFFFF:#06x}")
    if header.producer_id != -1 and min(header.producer_id, header.producer_epoch, header.base_sequence) < 0:
        raise InvalidRecord("a producer id, epoch or sequence below 0")


def _check_time(header: Header, settings: TopicSettings, now_ms: int) -> None:
    if header.attributes & APPEND_TIME_ATTRIBUTE:
        raise BadTimestamp("the batch says that its time is that of the broker")
    if not 0 <= header.base_timestamp_ms <= header.max_timestamp_ms:
        raise BadTimestamp(f"times from {header.base_timestamp_ms} to {header.max_timestamp_ms}")
    ahead_ms_max = settings.ahead_ms_max
    if ahead_ms_max is not None and header.max_timestamp_ms > now_ms + ahead_ms_max:
        raise BadTimestamp(f"{header.max_timestamp_ms - now_ms} ms ahead; ahead_ms_max is {ahead_ms_max}")


def _check_records(batch: Buffer, header: Header, codec: int, settings: TopicSettings) -> None:
    records = memoryview(batch)[HEADER_BYTES:]
    try:
        if codec:
            records = unpack(codec, records, bytes_max=settings.unpacked_bytes_max)
        if not settings.is_compacted:
            return
        for expected, entry in enumerate(entries(records, header.record_count)):
            if entry.offset_delta != expected:
                raise InvalidRecord(f"offset delta {entry.offset_delta} where {expected} belongs")
            if entry.key is None:
                raise KeylessRecord("a record without a key, in a compacted topic")
    except (BadBatch, BadlyPacked) as error:
        raise CorruptBatch(str(error)) from None


def stamped(batch: Buffer, now_ms: int) -> bytearray:
    """Return a copy of a checked batch whose records all have the time of now."""
    copy = bytearray(batch)
    (attributes,) = _ATTRIBUTES.unpack_from(copy, CRC_FROM)
    _ATTRIBUTES.pack_into(copy, CRC_FROM, attributes | APPEND_TIME_ATTRIBUTE)
    _MAX_TIMESTAMP.pack_into(copy, _MAX_TIMESTAMP_AT, now_ms)
    _CRC.pack_into(copy, _CRC_AT, crc32c(memoryview(copy)[CRC_FROM:]))
    return copy
