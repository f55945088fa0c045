"""Record batches of a topic as Arrow: the format is Kafka's (`log/record.py` has its drawing), the columns are Spark's.

    bytes of batches ──▶ heads, records unpacked ──▶ where each record begins ──▶ columns

Where a record begins is known only from the one before it: that is the one step for each
record, and all it reads is a length. Everything else is done for all records at once;
keys and values are neighbours in one buffer, and Arrow copies out those that are wanted.

Only numpy and pyarrow, codecs included: executors have no packages of a server. No CRC is
checked here. A server checks them when it reads, and so does a reader of its files.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.contract.history_columns import Column
from penstock.contract.limits import MIB
from penstock.history_arrow import HEADERS, KINDS, TIME, schema_of
from penstock.pipeline.source.ranges import Wanted

_HEAD = struct.Struct(">qiibIhiqqqhii")
_LENGTH_FROM = 12
_CODEC_MASK = 0x07
_APPEND_TIME = 0x08
# Of the server's own log, and of Kafka's transactions: readers never see them.
_NOT_RECORDS = 0x4000 | 0x20
_UNPACKED_BYTES_MAX = 256 * MIB
_STREAMED = {1: "gzip", 3: "lz4", 4: "zstd"}
_SNAPPY = 2
_JAVA_SNAPPY = b"\x82SNAPPY\0"
_JAVA_SNAPPY_HEAD_BYTES = 16
# A number of 64 bits takes ten bytes at most.
_VARINT_BYTES_MAX = 10
_PADDING = bytes(2 * _VARINT_BYTES_MAX)


class BadRecords(Exception):
    """The records of a batch are not what its head says; its producer wrote something else."""


class Batch(NamedTuple):
    """What the head of a batch says, and its records as they lie in it."""

    base_offset: int
    next_offset: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    record_count: int
    records: memoryview


def read_batches(content: memoryview) -> Iterator[Batch]:
    """Yield the batches of an answer, which are whole."""
    at = 0
    while at < len(content):
        base, length, _, _, _, attributes, last_delta, base_ms, max_ms, _, _, _, count = _HEAD.unpack_from(content, at)
        end = at + _LENGTH_FROM + length
        yield Batch(base, base + last_delta + 1, attributes, base_ms, max_ms, count, content[at + _HEAD.size : end])
        at = end


def batch_of(batches: Sequence[Batch], topic: str, partition: int, rows: tuple[int, int], wanted: Wanted) -> Any:
    """Return the wanted columns of the records with offsets from one on and below another; None if there are none."""
    found = _Records([batch for batch in batches if batch.record_count and not batch.attributes & _NOT_RECORDS])
    chosen = found.chosen(rows, wanted)
    if not len(chosen):
        return None
    said = {"topic": topic, "partition": partition}
    made = []
    for column in wanted.columns:
        if column.name in said:
            made.append(pa.repeat(pa.scalar(said[column.name], KINDS[column.kind]), len(chosen)))
        else:
            made.append(found.column(column, chosen))
    return pa.RecordBatch.from_arrays(made, schema=schema_of(wanted.columns))


class _Records:
    """The records of some batches: where each, and each part of it, lies in one buffer."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        parts = [_unpacked(batch) for batch in batches]
        data = b"".join((*parts, _PADDING))
        starts: list[int] = []
        ends: list[int] = []
        at = 0
        for batch, part in zip(batches, parts, strict=True):
            _walk(data, at, at + len(part), batch.record_count, starts, ends)
            at += len(part)
        self._data, self._bytes = data, np.frombuffer(data, np.uint8)
        self._ends = np.array(ends, np.int64)
        # Behind the attributes of a record, which are not used.
        delta_ms, at_next = self._varints(np.array(starts, np.int64) + 1)
        delta, at_next = self._varints(at_next)
        self._keys = self._blobs(at_next)
        self._values = self._blobs(self._keys[1])
        self._header_counts, self._headers_at = self._varints(self._values[1])
        if np.any(self._headers_at > self._ends):
            raise BadRecords("a record does not end where it says")
        counts = [batch.record_count for batch in batches]
        self._offsets = _each(counts, [batch.base_offset for batch in batches]) + delta
        is_stamped = _each(counts, [batch.attributes & _APPEND_TIME for batch in batches]) != 0
        stamped_ms = _each(counts, [batch.max_timestamp_ms for batch in batches])
        own_ms = _each(counts, [batch.base_timestamp_ms for batch in batches]) + delta_ms
        self._is_stamped, self._at_ms = is_stamped, np.where(is_stamped, stamped_ms, own_ms)

    def _varints(self, at: Any) -> tuple[Any, Any]:
        """Return the number at each position, and the position behind it."""
        # A length that leads beyond its record leads beyond what is there.
        at = np.minimum(at, self._ends)
        numbers, is_open = np.zeros(len(at), np.uint64), np.ones(len(at), bool)
        for place in range(_VARINT_BYTES_MAX):
            byte = np.where(is_open, self._bytes[at], 0)
            numbers |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            at = at + is_open
            is_open &= byte >= 0x80
            if not is_open.any():
                break
        else:
            raise BadRecords("a number runs past its end")
        # Zigzag: the lowest bit is the sign.
        return (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64), at

    def _blobs(self, at: Any) -> tuple[Any, Any, Any]:
        """Return where keys, or values, begin and end, and which there are."""
        lengths, at = self._varints(at)
        ends = at + np.maximum(lengths, 0)
        if np.any(ends > self._ends) or np.any(ends < at):
            raise BadRecords("a key or value runs past its record")
        return at, ends, lengths >= 0

    def chosen(self, rows: tuple[int, int], wanted: Wanted) -> Any:
        is_chosen = (self._offsets >= rows[0]) & (self._offsets < rows[1])
        if wanted.from_ms is not None:
            is_chosen &= self._at_ms >= wanted.from_ms
        if wanted.until_ms is not None:
            is_chosen &= self._at_ms < wanted.until_ms
        return np.flatnonzero(is_chosen)

    def column(self, column: Column, chosen: Any) -> Any:
        match column.name:
            case "key":
                return self._taken(self._keys, chosen)
            case "value":
                return self._taken(self._values, chosen)
            case "offset":
                return pa.array(self._offsets[chosen])
            case "timestamp":
                return pa.array(self._at_ms[chosen] * 1_000).view(TIME)
            case "timestampType":
                return pa.array(self._is_stamped[chosen].astype(np.int32))
        assert column.name == "headers", column.name
        return self._headers(chosen)

    def _taken(self, blobs: tuple[Any, Any, Any], chosen: Any) -> Any:
        """Return keys or values: every second of the pieces that their edges cut the whole buffer into."""
        starts, ends, is_there = blobs
        edges = np.empty(2 * len(starts), np.int32)
        edges[::2], edges[1::2] = starts, ends
        pieces = pa.Array.from_buffers(
            pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(self._data)]
        )
        return pieces.take(pa.array(2 * chosen, mask=~is_there[chosen]))

    def _headers(self, chosen: Any) -> Any:
        """Return the headers of each record; null where there are none. Headers cost a loop over records."""
        if not np.any(self._header_counts[chosen]):
            return pa.nulls(len(chosen), HEADERS)
        places = zip(
            self._header_counts[chosen].tolist(),
            self._headers_at[chosen].tolist(),
            self._ends[chosen].tolist(),
            strict=True,
        )
        return pa.array([_headers_of(self._data, *place) if place[0] else None for place in places], HEADERS)


def _each(counts: Sequence[int], said: Sequence[int]) -> Any:
    """Return what each batch says for each of its records."""
    return np.repeat(np.array(said, np.int64), np.array(counts, np.int64))


def _walk(data: bytes, at: int, end: int, count: int, starts: list[int], ends: list[int]) -> None:
    """Note where each of so many records begins behind its length, and where it ends."""
    for _ in range(count):
        length = data[at]
        at += 1
        if length >= 0x80:
            # Two bytes are what most take; a call for each would be half of all the time.
            more = data[at]
            length, at = (length & 0x7F | more << 7, at + 1) if more < 0x80 else _long(data, at - 1)
        starts.append(at)
        at += length >> 1
        if length & 1 or at > end:
            raise BadRecords("a record does not end where it says")
        ends.append(at)
    if at != end:
        raise BadRecords(f"{end - at} bytes after the last record")


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of several bytes, its sign still in its lowest bit, and the position behind it."""
    number = 0
    for place in range(_VARINT_BYTES_MAX):
        byte = data[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise BadRecords("a number runs past its end")


def _headers_of(data: bytes, count: int, at: int, end: int) -> list[dict[str, Any]]:
    found = []
    for _ in range(count):
        name, at = _blob(data, at, end)
        value, at = _blob(data, at, end)
        found.append({"key": (name or b"").decode(errors="replace"), "value": value})
    if at != end:
        raise BadRecords("headers do not end where their record does")
    return found


def _blob(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    number, at = _long(data, at)
    length = number >> 1
    if number & 1:
        return None, at
    if at + length > end:
        raise BadRecords("a header runs past its record")
    return data[at : at + length], at + length


def _unpacked(batch: Batch) -> Any:
    codec = batch.attributes & _CODEC_MASK
    if not codec:
        return batch.records
    if codec == _SNAPPY:
        return _unpacked_snappy(batch.records)
    if codec not in _STREAMED:
        raise BadRecords(f"the batch at offset {batch.base_offset} is packed with codec {codec}, which is not known")
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(batch.records)), _STREAMED[codec]) as stream:
            found = stream.read(_UNPACKED_BYTES_MAX + 1)
    except OSError as error:
        raise BadRecords(f"the batch at offset {batch.base_offset} cannot be unpacked: {error}") from None
    return _bounded(found)


def _unpacked_snappy(packed: memoryview) -> bytes:
    """Unpack snappy as it is, or in the frame of its Java library: blocks with their lengths."""
    blocks = [packed]
    if packed[: len(_JAVA_SNAPPY)] == _JAVA_SNAPPY:
        blocks, at = [], _JAVA_SNAPPY_HEAD_BYTES
        while at < len(packed):
            length = int.from_bytes(packed[at : at + 4], "big")
            blocks.append(packed[at + 4 : at + 4 + length])
            at += 4 + length
    try:
        return _bounded(b"".join(_unpacked_block(block) for block in blocks))
    except (OSError, IndexError) as error:
        raise BadRecords(f"a batch cannot be unpacked: {error}") from None


def _unpacked_block(block: memoryview) -> bytes:
    # It begins with its size: a number as in a record, without a sign.
    size, _ = _long(bytes(block[:_VARINT_BYTES_MAX]), 0)
    if size > _UNPACKED_BYTES_MAX:
        raise BadRecords(f"a block says that it becomes {size} bytes")
    found: bytes = pa.decompress(pa.py_buffer(block), decompressed_size=size, codec="snappy", asbytes=True)
    return found


def _bounded(found: bytes) -> bytes:
    if len(found) > _UNPACKED_BYTES_MAX:
        raise BadRecords(f"a batch becomes larger than {_UNPACKED_BYTES_MAX} bytes")
    return found
