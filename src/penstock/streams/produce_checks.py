"""Whether a produced batch may be stored, and as what: as it came, but for topics that want it otherwise.

A stored batch is served to consumers byte for byte, so what is wrong with it must be
found here: the header, the CRC, and every record (`record_check.py`). Packed records are
unpacked for that, within a bound, and thrown away. Keys are looked at only in a compacted
topic, and times only in a batch that does not say its latest.
"""

import struct
from collections.abc import Sequence

from crc32c import crc32c

from penstock.contract.topic_settings import TopicSettings
from penstock.log.record import COMPRESSION_MASK, CRC_FROM, HEADER_BYTES, LENGTH_FROM, VERSION, BadBatch, Header
from penstock.log.record import header as read_header
from penstock.runtime.interface import Buffer
from penstock.streams.compression import BadlyPacked, pack
from penstock.streams.record_check import BadRecord, check_records
from penstock.streams.records import entries, unpacked

APPEND_TIME_ATTRIBUTE = 0x08
_TRANSACTION_ATTRIBUTES = 0x10 | 0x20
_KNOWN_ATTRIBUTES = COMPRESSION_MASK | APPEND_TIME_ATTRIBUTE | _TRANSACTION_ATTRIBUTES

_CRC = struct.Struct(">I")
_CRC_AT = 17
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35
_NO_TIME = -1
_TIME_MS_MAX = 2**63 - 1


class CorruptBatch(Exception):
    """These bytes are not a whole, undamaged record batch."""


class InvalidRecord(Exception):
    """The batch is undamaged, and yet not one that a producer may send; ``indexes`` says because of which records."""

    def __init__(self, message: str, indexes: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.indexes = indexes


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
        _check_time(batch, header, settings, now_ms)
    _check_records(batch, header, settings)
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


def _check_time(batch: Buffer, header: Header, settings: TopicSettings, now_ms: int) -> None:
    if header.attributes & APPEND_TIME_ATTRIBUTE:
        raise BadTimestamp("the batch says that its time is that of the broker")
    latest_ms = _latest_ms(batch, header, settings)
    # A producer need not say a time; its records then have none, which is -1, as in Kafka.
    if not _NO_TIME <= header.base_timestamp_ms <= latest_ms <= _TIME_MS_MAX:
        raise BadTimestamp(f"times from {header.base_timestamp_ms} to {latest_ms}")
    ahead_ms_max = settings.ahead_ms_max
    if ahead_ms_max is not None and latest_ms > now_ms + ahead_ms_max:
        raise BadTimestamp(f"{latest_ms - now_ms} ms ahead; ahead_ms_max is {ahead_ms_max}")


def _latest_ms(batch: Buffer, header: Header, settings: TopicSettings) -> int:
    """Return the latest time in a batch, which some producers leave to the broker to find."""
    if header.max_timestamp_ms != _NO_TIME or header.base_timestamp_ms == _NO_TIME:
        return header.max_timestamp_ms
    try:
        records = unpacked(batch, header, bytes_max=settings.unpacked_bytes_max)
        deltas = [entry.timestamp_delta_ms for entry in entries(records, header.record_count)]
    except (BadBatch, BadlyPacked) as error:
        raise CorruptBatch(str(error)) from None
    return header.base_timestamp_ms + max(deltas)


def _check_records(batch: Buffer, header: Header, settings: TopicSettings) -> None:
    try:
        records = unpacked(batch, header, bytes_max=settings.unpacked_bytes_max)
        check_records(records, header.record_count)
    except BadlyPacked as error:
        raise CorruptBatch(str(error)) from None
    except BadRecord as error:
        raise InvalidRecord(str(error), [error.index]) from None
    if settings.is_compacted:
        found = enumerate(entries(records, header.record_count))
        if keyless := [index for index, entry in found if entry.key is None]:
            raise KeylessRecord("a record without a key, in a compacted topic", keyless)


def as_stored(batch: Buffer, header: Header, settings: TopicSettings, now_ms: int) -> Buffer:
    """Return a checked batch as its topic keeps it: with its records packed, and timed, as the topic wants them.

    Nearly always it is the batch itself. Raises `MessageTooLarge` if it is no more what the topic takes.
    """
    codec = header.attributes & COMPRESSION_MASK
    wanted = codec if settings.codec is None else settings.codec
    latest_ms = now_ms if settings.has_append_time else _latest_ms(batch, header, settings)
    attributes = header.attributes & ~COMPRESSION_MASK | wanted
    if settings.has_append_time:
        attributes |= APPEND_TIME_ATTRIBUTE
    if (attributes, latest_ms) == (header.attributes, header.max_timestamp_ms):
        return batch
    copy = bytearray(batch)
    if wanted != codec:
        copy[HEADER_BYTES:] = pack(wanted, unpacked(batch, header, bytes_max=settings.unpacked_bytes_max))
        if len(copy) > settings.message_bytes_max:
            raise MessageTooLarge(f"packed anew it has {len(copy)} bytes; {settings.message_bytes_max} are allowed")
    _LENGTH.pack_into(copy, _LENGTH_AT, len(copy) - LENGTH_FROM)
    _ATTRIBUTES.pack_into(copy, CRC_FROM, attributes)
    _MAX_TIMESTAMP.pack_into(copy, _MAX_TIMESTAMP_AT, latest_ms)
    _CRC.pack_into(copy, _CRC_AT, crc32c(memoryview(copy)[CRC_FROM:]))
    return copy
