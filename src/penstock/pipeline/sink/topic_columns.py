"""The columns of a write to a topic, named as Spark's Kafka sink names them, checked, a whole Arrow batch at a time.

    value       BINARY or STRING                              the only one that must be there; null is a tombstone
    key         BINARY or STRING                              null for none
    headers     ARRAY<STRUCT<key: STRING, value: BINARY>>     or values of STRING; null for none
    partition   a whole number                                null: the key says which
    timestamp   TIMESTAMP                                     null: when it is sent

A column that is nothing but null (VOID) says nothing. One of a wrong type fails the write before a task is started. A
row that cannot be sent fails its task before anything of its chunk is sent, and the error
names the row, the column and the limit.

The column `partition` says the partition of a row, or else its key. Rows with neither go to one partition together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.core.routes import murmur2
from penstock.pipeline.sink.columns import (
    BadColumns,
    BadRow,
    WrongValue,
    bytes_of,
    check_names,
    is_bytes,
    read_columns,
    refuse,
    times_of,
    whole_numbers,
    without_rows,
)
from penstock.pipeline.sink.topic_batches import RECORD_BYTES_MORE, encode_headers, without_null

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NOT_SAID = -1
_SEED, _FACTOR = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)
# Longer keys are few, and go one by one.
_WORDS_MAX = 64


def partitions_of(rows: pa.RecordBatch, *, partitions: int, otherwise: int) -> Any:
    """Return a partition for each row of `columns.read_rows`; ``otherwise`` where nothing is said and no key is there.

    Rows without a key that are sent together go to one partition, as Kafka's own clients have it: many small
    batches cost more than a few large ones. The next ones go to the next.
    """
    found = np.full(rows.num_rows, otherwise % partitions, np.int32)
    names = rows.schema.names
    if "key" in names:
        keys = rows.column("key")
        has_key = pc.is_valid(keys).to_numpy(zero_copy_only=False)
        if has_key.any():
            hashes = murmur2_of(without_null(keys)) & np.uint32(0x7FFFFFFF)
            found = np.where(has_key, (hashes % np.uint32(partitions)).astype(np.int32), found)
    if "partition" in names:
        said = rows.column("partition").to_numpy(zero_copy_only=False)
        found = np.where(said == NOT_SAID, found, said)
    return found.astype(np.int32)


def murmur2_of(keys: pa.Array) -> Any:
    """Return the hash of each key of an Arrow column of binary without nulls."""
    _, offsets, buffer = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    starts, lengths = ends[:-1], np.diff(ends)
    content = b"" if buffer is None else buffer[int(ends[0]) : int(ends[-1])]
    # What follows the last key is looked at and not used.
    data = np.frombuffer(b"".join((content, bytes(4))), np.uint8).astype(np.uint32)
    starts = starts - ends[0]
    words = lengths // 4
    found = _SEED ^ lengths.astype(np.uint32)
    for place in range(min(int(words.max(initial=0)), _WORDS_MAX)):
        chosen = np.flatnonzero(words > place)
        word = _word(data, starts[chosen] + 4 * place) * _FACTOR
        word = (word ^ word >> np.uint32(24)) * _FACTOR
        found[chosen] = found[chosen] * _FACTOR ^ word
    rest = lengths % 4
    tails = np.flatnonzero(rest)
    tail = _word(data, starts[tails] + 4 * words[tails]) & ((np.uint32(1) << (8 * rest[tails]).astype(np.uint32)) - 1)
    found[tails] = (found[tails] ^ tail.astype(np.uint32)) * _FACTOR
    found = (found ^ found >> np.uint32(13)) * _FACTOR
    found = found ^ found >> np.uint32(15)
    for long in np.flatnonzero(words > _WORDS_MAX).tolist():
        found[long] = murmur2(keys[long].as_py())
    return found


def _word(data: Any, at: Any) -> Any:
    """The four bytes at each position as a number, the lowest first."""
    found = data[at]
    for place in range(1, 4):
        found = found | data[at + place] << np.uint32(8 * place)
    return found


COLUMNS = ("value", "key", "headers", "partition", "timestamp")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a topic takes."""

    partitions: int
    batch_bytes_max: int
    # Where a chunk ends: a job keeps to it, although the topic may take larger batches by now.
    chunk_bytes_max: int


def check_columns(schema: "StructType") -> None:
    """Raise `BadColumns` before any task is started."""
    names = schema.fieldNames()
    if "topic" in names:
        raise BadColumns("option topic and column topic are both there; a write goes to one topic: drop the column")
    check_names(names, COLUMNS, "a write to a topic", needed="value")
    try:
        read_rows(without_rows(schema), 0, Bounds(partitions=1, batch_bytes_max=1, chunk_bytes_max=1))
    except BadRow as error:
        raise BadColumns(str(error)) from None


def read_rows(batch: pa.RecordBatch, first_row: int, bounds: Bounds) -> pa.RecordBatch:
    """Return columns to encode; ``first_row`` is the number of the first row in its partition, for errors."""
    columns = read_columns(batch, first_row, _VOID, lambda name, column: _READERS[name](column, bounds))
    _check_sizes(columns, first_row, bounds)
    return pa.RecordBatch.from_pydict(columns)


def content_bytes(columns: "dict[str, pa.Array]") -> Any:
    """How many bytes of its own each record has."""
    count = len(next(iter(columns.values())))
    found = np.zeros(count, np.int64)
    for name in ("key", "value", "headers"):
        if name in columns:
            found += pc.binary_length(columns[name]).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _check_sizes(columns: "dict[str, pa.Array]", first_row: int, bounds: Bounds) -> None:
    sizes = content_bytes(columns)
    too_large = np.flatnonzero(sizes > bounds.batch_bytes_max - RECORD_BYTES_MORE)
    if len(too_large):
        row = int(too_large[0])
        raise BadRow(
            f"row {first_row + row} of the partition: key, value and headers have {sizes[row]} bytes; "
            f"max_message_bytes of the topic is {bounds.batch_bytes_max}, with {RECORD_BYTES_MORE} around a record"
        )


def _bytes(column: pa.Array, _bounds: Bounds) -> pa.Array:
    return bytes_of(column)


def _headers(column: pa.Array, _bounds: Bounds) -> pa.Array:
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not _is_pair(kind.value_type):
        raise WrongValue(f"is {kind}; it is ARRAY<STRUCT<key: STRING, value: BINARY>>")
    listed = column.cast(pa.list_(kind.value_type))
    # A header that is null has no key, either.
    place = pc.index(pc.is_null(listed.flatten().flatten()[0]), True).as_py()
    if place >= 0:
        row = pc.list_parent_indices(listed)[place].as_py()
        raise WrongValue("has a header without a key, or a header that is null", row)
    return encode_headers(listed)


def _partition(column: pa.Array, bounds: Bounds) -> pa.Array:
    numbers = whole_numbers(column)
    wrong = pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, bounds.partitions))
    refuse(wrong, column, lambda value: f"is {value}; the topic has 0 to {bounds.partitions - 1} for this write")
    return numbers.fill_null(NOT_SAID).cast(pa.int32())


def _timestamp(column: pa.Array, _bounds: Bounds) -> pa.Array:
    return times_of(column, least_ms=0).fill_null(NOT_SAID)


_READERS: dict[str, Callable[[pa.Array, Bounds], pa.Array]] = {
    "value": _bytes,
    "key": _bytes,
    "headers": _headers,
    "partition": _partition,
    "timestamp": _timestamp,
}

# What a column that is nothing but null is taken for.
_VOID = {
    "value": pa.binary(),
    "key": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def _is_pair(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind):
        return False
    fields = [kind.field(at) for at in range(kind.num_fields)]
    return [each.name for each in fields] == ["key", "value"] and all(is_bytes(each.type) for each in fields)
