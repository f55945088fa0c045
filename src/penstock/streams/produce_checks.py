"""Whether a produced batch may be stored, and as what: as it came, unless the topic says otherwise.

A stored batch is served to consumers byte for byte, so what is wrong with it must be
found here: the header, the CRC, and every record. Packed records are unpacked for that,
within a bound, and thrown away. Keys are looked at only in a compacted topic, and times
only in a batch that does not say its latest.

A consumer reads a record by its lengths. If one of them is wrong, or there are fewer
records than announced, Kafka's clients stop at that batch, some without an error. So
every record is walked when it is produced: its length, its offset delta, its key, value
and headers, and that the last one ends where the batch does.

Two ways lead through a batch. Both check the same:

    one by one   a record at a time, in a loop: about as expensive as all else that is done for it
    in a run     records without headers that have the same sizes, up to 8,192 at once. The bytes that
                 matter stand in columns; each column is cut out and compared as a whole

After a try that finds no run worth it, twice as many records are walked before the next one.
"""

import struct
from collections.abc import Sequence

from crc32c import crc32c

from penstock.contract.topic_settings import TopicSettings
from penstock.log.record import COMPRESSION_MASK, CRC_FROM, HEADER_BYTES, LENGTH_FROM, VERSION, BadBatch, Header
from penstock.log.record import header as read_header
from penstock.runtime.interface import Buffer
from penstock.streams.compression import BadlyPacked, entries, pack, unpacked

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
_WALKED_MAX = 64
_RUN_MIN = 16
_INT_BYTES_MAX = 5
_LONG_BYTES_MAX = 10
# Bytes of a number: after one of these another follows, and these are the last.
_MORE_FOLLOWS = bytes(range(128, 256))
_LAST = bytes(range(128))
# The third byte of an offset delta is the same for this many records.
_BLOCK = 8_192
# Offset deltas of one byte, and the bytes of a block of longer ones.
_DELTAS = bytes(range(0, 128, 2))
_DELTAS_LOW = bytes(range(128, 256, 2)) * (_BLOCK // 64)
_DELTAS_HIGH = b"".join(bytes([high]) * 64 for high in range(_BLOCK // 64))
_DELTAS_MIDDLE = bytes(128 | high for high in _DELTAS_HIGH)


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
            raise MessageTooLarge(f"recompressed it has {len(copy)} bytes; {settings.message_bytes_max} are allowed")
    _LENGTH.pack_into(copy, _LENGTH_AT, len(copy) - LENGTH_FROM)
    _ATTRIBUTES.pack_into(copy, CRC_FROM, attributes)
    _MAX_TIMESTAMP.pack_into(copy, _MAX_TIMESTAMP_AT, latest_ms)
    _CRC.pack_into(copy, _CRC_AT, crc32c(memoryview(copy)[CRC_FROM:]))
    return copy


class BadRecord(BadBatch):
    """A record cannot be read; ``index`` says which of its batch."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"record {index} of the batch {reason}")
        self.index = index


def check_records(records: Buffer, count: int) -> None:
    """Raise `BadRecord` unless there are ``count`` whole records with the offset deltas 0, 1, 2 … and nothing else."""
    # Indexing bytes costs half of indexing a view.
    data = bytes(records)
    at = index = 0
    walked = 1
    while index < count:
        upto = min(count, index + walked)
        begins, at = _check_one_by_one(data, at, index, upto)
        found = _run(data, begins, at, upto, count)
        at, index = at + found * (at - begins), upto + found
        walked = 1 if found >= _RUN_MIN else min(2 * walked, _WALKED_MAX)
    if at != len(data):
        raise BadRecord(count - 1, f"is the last; {len(data) - at} bytes follow it")


# One long loop, in which numbers of two bytes are read in place: a call costs more than what it would do.
def _check_one_by_one(data: bytes, at: int, index: int, upto: int) -> tuple[int, int]:  # noqa: C901, PLR0912
    """Check records from ``index`` to before ``upto``; return where the last of them begins and ends."""
    begins = at
    try:
        for delta in range(index, upto):
            index, begins = delta, at
            length, at = data[at], at + 1
            if length > 127:
                length += (data[at] << 7) - 128
                at += 1
                if length > 16_383:
                    length, at = _number(data, begins)
            end = at + (length >> 1)
            # The attributes mean nothing. The time may be any.
            at += 2
            if data[at - 1] > 127:
                at = _after(data, at - 1, _LONG_BYTES_MAX)
            number, at = data[at], at + 1
            if number > 127:
                number += (data[at] << 7) - 128
                at += 1
                if number > 16_383:
                    number, at = _number(data, at - 2)
            if number != delta + delta:
                raise BadRecord(delta, f"has the offset delta {number >> 1 ^ -(number & 1)}, where {delta} belongs")
            # 1 is a length of -1: no key, no value.
            number, at = data[at], at + 1
            if number != 1:
                if number > 127:
                    number, at = _number(data, at - 1)
                if number & 1:
                    raise BadRecord(delta, "has a key of a length below 0")
                at += number >> 1
            number, at = data[at], at + 1
            if number != 1:
                if number > 127:
                    number += (data[at] << 7) - 128
                    at += 1
                    if number > 16_383:
                        number, at = _number(data, at - 2)
                if number & 1:
                    raise BadRecord(delta, "has a value of a length below 0")
                at += number >> 1
            at = at + 1 if data[at] == 0 else _after_headers(data, at, end)
            if at != end or length & 1:
                raise BadRecord(delta, "does not end where its length says")
    except IndexError:
        raise BadRecord(index, "has a length that does not fit, or is not there") from None
    return begins, at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of up to 32 bits as it is written, zigzag, and where it ends."""
    number = shift = 0
    for place in range(at, at + _INT_BYTES_MAX):
        number |= (data[place] & 0x7F) << shift
        if data[place] < 128:
            return number, place + 1
        shift += 7
    raise IndexError


def _after(data: bytes, at: int, bytes_max: int) -> int:
    """Return where a number ends."""
    for end in range(at, at + bytes_max):
        if data[end] < 128:
            return end + 1
    raise IndexError


def _after_headers(data: bytes, at: int, end: int) -> int:
    """Return where the headers of a record end. Each has a name, and a value or none."""
    count, at = _number(data, at)
    if count & 1 or count > end - at:
        raise IndexError
    for _ in range(count >> 1):
        for least in (0, -1):
            number, at = _number(data, at)
            length = number >> 1 ^ -(number & 1)
            if length < least:
                raise IndexError
            at += max(0, length)
    return at


def _run(data: bytes, begins: int, ends: int, index: int, count: int) -> int:
    """Return how many records behind a checked one have its sizes, and the right offset deltas: they are good, too."""
    size = ends - begins
    many = min(count - index, (len(data) - ends) // size)
    if many < _RUN_MIN or data[begins : begins + 2] != data[ends : ends + 2]:
        return 0
    time_at = _after(data, begins, _INT_BYTES_MAX) + 1
    delta_at = _after(data, time_at, _LONG_BYTES_MAX)
    key_at = _after(data, delta_at, _INT_BYTES_MAX)
    key_from, value_at = _field(data, key_at)
    value_from, headers_at = _field(data, value_at)
    if headers_at != ends - 1:
        return 0
    for place, wanted in zip(range(delta_at, key_at), _deltas(index, key_at - delta_at), strict=True):
        many = min(many, len(wanted))
        if data[place + size : place + size * many + 1 : size] != wanted[:many]:
            return 0
    # The times may differ, if they have as many bytes. All other numbers are the same.
    columns = [(place, _MORE_FOLLOWS) for place in range(time_at, delta_at - 1)] + [(delta_at - 1, _LAST)]
    same = (*range(begins, time_at - 1), *range(key_at, key_from), *range(value_at, value_from), headers_at)
    columns += [(place, data[place : place + 1]) for place in same]
    for place, allowed in columns:
        column = data[place + size : place + size * many + 1 : size]
        many = len(column) - len(column.lstrip(allowed))
    return many


def _field(data: bytes, at: int) -> tuple[int, int]:
    """Return where the bytes of a key or a value begin and end, those of none where they begin."""
    number, begins = _number(data, at)
    return begins, begins if number & 1 else begins + (number >> 1)


def _deltas(index: int, width: int) -> tuple[bytes, ...]:
    """Return the offset deltas from ``index`` on, as far as they have ``width`` bytes and share the third: all their
    first bytes, then all their second ones, and so on."""
    place = index % _BLOCK
    match width:
        case 1 if index < 64:
            return (_DELTAS[index:],)
        case 2 if 64 <= index < _BLOCK:
            return _DELTAS_LOW[place:], _DELTAS_HIGH[place:]
        case 3 if _BLOCK <= index < 128 * _BLOCK:
            return _DELTAS_LOW[place:], _DELTAS_MIDDLE[place:], bytes([index // _BLOCK]) * (_BLOCK - place)
    return (b"",) * width
