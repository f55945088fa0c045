"""Columns become record batches, as Kafka's producers make them (`log/record.py` has the drawing).

A record is a few numbers, its key, its value and its headers. The numbers of all records are made at once, with numpy.
Arrow joins them with the bytes, and what it joined is what is sent.

Executors may not have the package that computes CRC-32C in C. Without it numpy does: a checksum follows from the one
before it a byte at a time, but it is linear. So the checksums of many pieces of equal length are computed side by side
and then joined in pairs. What stands before a piece is added by moving its checksum past as many zeros as the piece has
bytes.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

_POLYNOMIAL = 0x82F63B78
_PIECE_BYTES = 256
_BITS = 32


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the checksum of at least four bytes."""
    return _fastest()(data)


@lru_cache(maxsize=1)
def _fastest() -> Callable[[bytes | bytearray | memoryview], int]:
    try:
        found: Callable[[bytes | bytearray | memoryview], int] = import_module("crc32c").crc32c
    except ImportError:
        return crc32c_of_columns
    return found


def crc32c_of_columns(data: bytes | bytearray | memoryview) -> int:
    """The same, without the package.

    >>> hex(crc32c_of_columns(b"123456789"))
    '0xe3069283'
    """
    assert len(data) >= 4
    count = 1 << max(0, (len(data) - 1) // _PIECE_BYTES).bit_length()
    # Zeros in front change nothing: the checksum of nothing but zeros is zero until the first bytes are inverted.
    padded = np.zeros(count * _PIECE_BYTES, np.uint8)
    start = len(padded) - len(data)
    padded[start:] = np.frombuffer(data, np.uint8)
    padded[start : start + 4] ^= 0xFF
    steps = np.ascontiguousarray(padded.view("<u2").reshape(count, -1).T).astype(np.uint32)
    table = _two_bytes()
    found = np.zeros(count, np.uint32)
    for step in steps:
        found = table[(found ^ step) & 0xFFFF] ^ (found >> np.uint32(16))
    level = _PIECE_BYTES.bit_length() - 1
    while len(found) > 1:
        found = _moved(found[::2], _past_zeros(level)) ^ found[1::2]
        level += 1
    return int(found[0]) ^ 0xFFFFFFFF


@lru_cache(maxsize=1)
def _one_byte() -> Any:
    found: Any = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        found = (found >> np.uint32(1)) ^ (found & 1) * np.uint32(_POLYNOMIAL)
    return found


@lru_cache(maxsize=1)
def _two_bytes() -> Any:
    first = _one_byte()[np.arange(1 << 16) & 0xFF] ^ (np.arange(1 << 16, dtype=np.uint32) >> np.uint32(8))
    return _one_byte()[first & 0xFF] ^ (first >> np.uint32(8))


@lru_cache(maxsize=_BITS)
def _past_zeros(level: int) -> Any:
    """What becomes of each bit of a checksum behind 2 to the power of ``level`` zeros."""
    bits = np.uint32(1) << np.arange(_BITS, dtype=np.uint32)
    if level == 0:
        return _one_byte()[bits & 0xFF] ^ (bits >> np.uint32(8))
    half = _past_zeros(level - 1)
    return _moved(half, half)


def _moved(checksums: Any, by_bit: Any) -> Any:
    found = np.zeros(len(checksums), np.uint32)
    for bit in range(_BITS):
        found ^= (checksums >> np.uint32(bit) & 1) * by_bit[bit]
    return found


CODECS = {"none": 0, "gzip": 1, "zstd": 4}
HEAD_BYTES = 61
# What a record takes beside its bytes when it is alone in a batch, at most, and the head of that batch.
RECORD_BYTES_MORE = HEAD_BYTES + 18
NO_HEADERS = b"\x00"
NO_PRODUCER = -1

_FRONT = struct.Struct(">qiibI")
_HEAD = struct.Struct(">hiqqqhii")
_VERSION = 2
# Of the length: where it begins to count.
_LENGTH_FROM = 12
_VARINT_BYTES_MAX = 10


@dataclass(frozen=True, slots=True)
class Batch:
    """Who sends records of one partition, and as which in a row."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


def encode_batches(rows: pa.RecordBatch, counts: "list[int]", batches: "list[Batch]", codec: str) -> bytes:
    """Return a batch for each count of rows, one after the other. ``timestamp`` of the rows is in milliseconds."""
    starts = np.cumsum([0, *counts[:-1]])
    at_ms = rows.column("timestamp").to_numpy(zero_copy_only=False)
    base_ms = np.minimum.reduceat(at_ms, starts)
    latest_ms = np.maximum.reduceat(at_ms, starts)
    records, ends = encode_records(
        rows,
        delta_ms=at_ms - np.repeat(base_ms, counts),
        offset_delta=np.arange(rows.num_rows) - np.repeat(starts, counts),
    )
    parts: list[bytes] = []
    for place, (start, count, batch) in enumerate(zip(starts.tolist(), counts, batches, strict=True)):
        packed, attributes = _packed(records[int(ends[start]) : int(ends[start + count])], codec)
        head = _HEAD.pack(
            attributes,
            count - 1,
            int(base_ms[place]),
            int(latest_ms[place]),
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            count,
        )
        checked = b"".join((head, packed))
        length = _FRONT.size + len(checked) - _LENGTH_FROM
        parts += (_FRONT.pack(0, length, 0, _VERSION, crc32c(checked)), checked)
    return b"".join(parts)


def encode_records(rows: pa.RecordBatch, *, delta_ms: Any, offset_delta: Any) -> tuple[memoryview, Any]:
    """Return all records as bytes, and where each begins, with the end at last."""
    keys = rows.column("key") if "key" in rows.schema.names else pa.nulls(rows.num_rows, pa.binary())
    values = rows.column("value")
    headers = rows.column("headers") if "headers" in rows.schema.names else None
    key_sizes, value_sizes = sizes_of(keys), sizes_of(values)
    header_bytes = len(NO_HEADERS) if headers is None else sizes_of(headers)
    deltas, key_numbers, value_numbers = (
        [Numbers.of(each) for each in columns] for columns in ((delta_ms, offset_delta), (key_sizes,), (value_sizes,))
    )
    lengths = (1 + header_bytes + np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0)) + sum(
        each.widths for each in (*deltas, *key_numbers, *value_numbers)
    )
    nothing = Numbers.of(np.zeros(rows.num_rows, np.int64))
    joined = pc.binary_join_element_wise(
        _laid(Numbers.of(lengths), nothing, *deltas, *key_numbers),
        without_null(keys),
        _laid(*value_numbers),
        without_null(values),
        pa.scalar(NO_HEADERS, pa.binary()) if headers is None else headers,
        pa.scalar(b"", pa.binary()),
    )
    _, offsets, data = joined.buffers()
    return memoryview(data), np.frombuffer(offsets, np.int32)[: len(joined) + 1]


def encode_headers(column: pa.ListArray) -> pa.Array:
    """Return the headers of each row as they stand in a record; null is none. Names of headers are not null."""
    pairs = column.flatten()
    names, values = (each.cast(pa.binary()) for each in pairs.flatten())
    pieces = pc.binary_join_element_wise(
        varints(sizes_of(names)),
        without_null(names),
        varints(sizes_of(values)),
        without_null(values),
        pa.scalar(b"", pa.binary()),
    )
    counts = np.nan_to_num(pc.list_value_length(column).to_numpy(zero_copy_only=False)).astype(np.int64)
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts).astype(np.int32)])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), pieces), pa.scalar(b"", pa.binary()))
    return pc.binary_join_element_wise(varints(counts), joined, pa.scalar(b"", pa.binary()))


def sizes_of(column: pa.Array) -> Any:
    """The length of each value, -1 for null, as a record has it."""
    return pc.binary_length(column).cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)


def without_null(column: pa.Array) -> pa.Array:
    """An empty value in the place of a null. Arrow would copy a column that has none."""
    return column.fill_null(b"") if column.null_count else column


class Numbers(NamedTuple):
    """A column of numbers as records have them: zigzag, and how many bytes each takes at seven bits in a byte."""

    zigzag: Any
    widths: Any

    @classmethod
    def of(cls, column: Any) -> "Numbers":
        whole = np.asarray(column, np.int64)
        zigzag = (whole << 1 ^ whole >> 63).view(np.uint64)
        return cls(zigzag, _widths(zigzag))


def varints(*columns: Any) -> pa.Array:
    """Return for each row its numbers, one after the other, as a record has them."""
    return _laid(*(Numbers.of(column) for column in columns))


def _laid(*columns: Numbers) -> pa.Array:
    total = sum(column.widths for column in columns)
    ends = np.cumsum(total)
    at = ends - total
    found = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for number, width in columns:
        for place in range(int(width.max(initial=0))):
            chosen = np.flatnonzero(width > place) if place else slice(None)
            byte = (number[chosen] >> np.uint64(7 * place)).astype(np.uint8) & 0x7F
            found[at[chosen] + place] = byte | (width[chosen] > place + 1) * np.uint8(0x80)
        at = at + width
    offsets = np.concatenate([np.zeros(1, np.int32), ends.astype(np.int32)])
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(found)])


def _widths(numbers: Any) -> Any:
    found = np.ones(len(numbers), np.int64)
    for place in range(1, _VARINT_BYTES_MAX):
        more = numbers >> np.uint64(7 * place) != 0
        if not more.any():
            break
        found += more
    return found


def _packed(records: memoryview, codec: str) -> tuple[memoryview, int]:
    """Pack records, unless they would take more than they do."""
    if codec == "none":
        return records, 0
    packed = memoryview(pa.compress(pa.py_buffer(records), codec=codec, asbytes=True))
    return (packed, CODECS[codec]) if len(packed) < len(records) else (records, 0)
