"""The columns of a write: what Spark gives becomes what a frame has, checked, a whole Arrow batch at a time.

    data             BINARY or STRING       the body; the only one that must be there
    priority         STRING or a number     a word in any case, or a tier from 0 to 4; null is NORMAL
    delay            a number               seconds before it can be received
    visible_at       TIMESTAMP              or the instant from which on it can
    group            STRING                 at most 128 bytes
    attributes       STRING, MAP, STRUCT    the text of a JSON object, or what becomes one
    dedup_id         STRING                 at most 128 bytes
    max_deliveries   a whole number         from 1 on
    queue            STRING                 where to, if option `queue` does not say

Null is "not said" everywhere but in `data` and `queue`, also in a column that is nothing but null (VOID). A column of
a wrong type fails the write before a task is started. A row that cannot be sent fails its
task before anything of its chunk is sent, and the error names the row, the column and the limit.

Attributes as a MAP or a STRUCT become the JSON text that a message carries. Each different text is quoted once, not
once for each row: names of attributes and most of their values repeat.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.contract.limits import (
    ATTRIBUTES_BYTES_MAX,
    BODY_BYTES_MAX,
    DELIVERIES_MAX,
    DURATION_MS_MAX,
    NAME_BYTES_MAX,
)
from penstock.contract.messages import PRIORITIES, Tier

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_NO_NUMBER = "an attribute is NaN or infinite; JSON has no such number"


class NotAttributes(ValueError):
    """This type, or this row, cannot be attributes; the message says what can."""

    def __init__(self, text: str, row: int | None = None) -> None:
        super().__init__(text)
        self.row = row


def is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind) or pa.types.is_struct(kind))


def check_nested(kind: pa.DataType) -> None:
    """Raise `NotAttributes` unless it is a map from text, or a struct, of texts, numbers and booleans."""
    if pa.types.is_map(kind):
        values = [kind.item_type]
        if not _is_text(kind.key_type):
            raise NotAttributes(f"a map from {kind.key_type}; names of attributes are texts")
    else:
        values = [kind.field(at).type for at in range(kind.num_fields)]
    for value in values:
        if not (_is_text(value) or _is_bare(value)):
            raise NotAttributes(f"an attribute of type {value}; it is a text, a number or a boolean")


def json_of(column: pa.Array) -> pa.Array:
    """Return each row as the text of a JSON object; a null, and what has no attributes, is an empty text."""
    texts = _of_map(column) if pa.types.is_map(column.type) else _of_struct(column)
    is_empty = pc.equal(texts, "{}")
    return pc.if_else(pc.or_kleene(is_empty, pc.is_null(texts)), pa.scalar("", pa.string()), texts)


def _of_map(column: pa.MapArray) -> pa.Array:
    keys, items = column.keys, column.items
    # The parts before and after a slice are not its rows.
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    if len(keys) != last - first:
        keys, items = keys.slice(first, last - first), items.slice(first, last - first)
    offsets = pc.subtract(column.offsets, first)
    place = _not_finite(items)
    if place is not None:
        raise NotAttributes(_NO_NUMBER, bisect_right(offsets.to_pylist(), place) - 1)
    entries = pc.binary_join_element_wise(_quoted(keys), _rendered(items), ":")
    if entries.null_count:
        # An attribute without a value is none.
        kept = pc.cast(pc.is_valid(entries), pa.int32())
        before = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(kept).cast(pa.int32())])
        offsets, entries = before.take(offsets), entries.drop_null()
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, entries), ",")
    texts = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def _of_struct(column: pa.StructArray) -> pa.Array:
    entries = []
    # Unlike its fields, its flattened columns are those of the slice.
    for at, values in enumerate(column.flatten()):
        row = _not_finite(values)
        if row is not None:
            raise NotAttributes(_NO_NUMBER, row)
        name = json.dumps(column.type.field(at).name, ensure_ascii=False)
        entries.append(pc.binary_join_element_wise(name, _rendered(values), ":"))
    # Arrow loses rows in which everything is skipped, so each begins with a text that is not.
    joined = pc.utf8_ltrim(pc.binary_join_element_wise("", *entries, ",", null_handling="skip"), characters=",")
    texts = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def _not_finite(values: pa.Array) -> int | None:
    """Return the place of the first value that is no number for JSON."""
    if not pa.types.is_floating(values.type):
        return None
    place: int = pc.index(pc.is_finite(values), False).as_py()
    return None if place < 0 else place


def _rendered(values: pa.Array) -> pa.Array:
    return _quoted(values) if _is_text(values.type) else values.cast(pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    coded = texts.cast(pa.string()).dictionary_encode()
    words = pa.array([json.dumps(word, ensure_ascii=False) for word in coded.dictionary.to_pylist()], pa.string())
    return words.take(coded.indices)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bare(kind: pa.DataType) -> bool:
    are = pa.types
    is_number = are.is_integer(kind) or are.is_floating(kind) or are.is_decimal(kind)
    # Of a value that is nothing but null there is no attribute.
    return bool(is_number or are.is_boolean(kind) or are.is_null(kind))


COLUMNS = ("data", "priority", "delay", "visible_at", "group", "attributes", "dedup_id", "max_deliveries", "queue")
_WORDS = pa.array([*PRIORITIES, "0", "1", "2", "3", "4"])


class BadColumns(ValueError):
    """The columns of the frame are not those of a write; the message names them."""


class BadRow(ValueError):
    """A row cannot be sent; the message says which, and why."""


def check_columns(schema: "StructType", *, has_queue: bool) -> None:
    """Raise `BadColumns` before any task is started."""
    names = schema.fieldNames()
    check_names(names, COLUMNS, "a write", needed="data", meaning=", the body of each message")
    if has_queue == ("queue" in names):
        raise BadColumns(
            "option queue and column queue are both there; give one of them"
            if has_queue
            else "where to? give option queue, or a column queue"
        )
    try:
        read_batch(without_rows(schema), 0)
    except BadRow as error:
        raise BadColumns(str(error)) from None


def check_names(names: Sequence[str], known: Sequence[str], noun: str, *, needed: str, meaning: str = "") -> None:
    """Raise `BadColumns` unless the columns of a frame are some of those that are known, each once."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise BadColumns(f"no column of {noun} is called {', '.join(unknown)}; there are {', '.join(known)}")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise BadColumns(f"{', '.join(doubled)} is there more than once")
    if needed not in names:
        raise BadColumns(f"the column {needed} is missing{meaning}; there are {', '.join(known)}")


def without_rows(schema: "StructType") -> pa.RecordBatch:
    """Return what a task would get of this schema if it had no rows: a check of types alone."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - of the driver, which has Spark.

    kinds = to_arrow_schema(schema, timezone="UTC")
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in kinds.types], schema=kinds)


def read_batch(batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
    """Return the columns of a frame; ``first_row`` is the number of the first row in its partition, for errors."""
    columns = read_columns(batch, first_row, _VOID, lambda name, column: _READERS[name](column))
    if "delay" in columns and "visible_at" in columns:
        both = pc.and_(pc.not_equal(columns["delay"], 0), pc.not_equal(columns["visible_at"], 0))
        if pc.any(both).as_py():
            row = first_row + pc.index(both, True).as_py()
            raise BadRow(f"row {row} of the partition: delay and visible_at are both there; give one of them")
    return pa.RecordBatch.from_pydict(columns)


def read_columns(
    batch: pa.RecordBatch, first_row: int, void: Mapping[str, pa.DataType], read: Callable[[str, pa.Array], pa.Array]
) -> dict[str, pa.Array]:
    """Return each column as ``read`` makes it. ``void`` says what one that is nothing but null is taken for."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns[name] = read(name, column.cast(void[name]) if pa.types.is_null(column.type) else column)
        except WrongValue as wrong:
            raise BadRow(f"{_row(first_row, wrong.row)}column {name} {wrong}") from None
        except (pa.ArrowException, NotAttributes) as error:
            row = _row(first_row, getattr(error, "row", None))
            raise BadRow(f"{row}column {name} ({column.type}) cannot be read: {error}") from None
    return columns


def _row(first_row: int, row: int | None) -> str:
    return "" if row is None else f"row {first_row + row} of the partition: "


class WrongValue(Exception):
    """A column, or the value in one row of it, is not what it has to be; the message goes on behind its name."""

    def __init__(self, text: str, row: int | None = None) -> None:
        super().__init__(text)
        self.row = row


def _data(column: pa.Array) -> pa.Array:
    found = bytes_of(column)
    refuse(pc.is_null(column), column, lambda _: "is null; a message needs a body")
    return _within(found, BODY_BYTES_MAX, "BODY_BYTES_MAX")


def _priority(column: pa.Array) -> pa.Array:
    if _is_text(column.type):
        place = pc.index_in(pc.utf8_upper(column.cast(pa.string())), value_set=_WORDS)
        wrong = pc.and_(pc.is_null(place), pc.is_valid(column))
        tiers = pc.subtract(place, pc.multiply(pc.cast(pc.greater_equal(place, 5), pa.int32()), 5))
    else:
        tiers = whole_numbers(column)
        wrong = pc.or_(pc.less(tiers, 0), pc.greater(tiers, len(PRIORITIES) - 1))
    refuse(wrong, column, lambda value: f"is {value!r}; a priority is {', '.join(PRIORITIES)}, or 0 to 4")
    return tiers.fill_null(int(Tier.NORMAL)).cast(pa.uint8())


def _delay(column: pa.Array) -> pa.Array:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        raise WrongValue(f"is {column.type}; it is a number of seconds")
    seconds = column.cast(pa.float64(), safe=False)
    most_s = DURATION_MS_MAX / 1_000
    # A comparison with NaN is false, so this compares with what is allowed.
    good = pc.and_(pc.greater_equal(seconds, 0.0), pc.less_equal(seconds, most_s))
    refuse(pc.invert(good), column, lambda value: f"is {value}; a delay is 0 to {most_s:.0f} seconds")
    exact = seconds.fill_null(0.0).to_numpy(zero_copy_only=False) * 1_000
    # More than nothing is not nothing.
    return pa.array(np.where(exact > 0, np.maximum(np.rint(exact), 1), 0).astype(np.int64))


def _visible_at(column: pa.Array) -> pa.Array:
    return times_of(column, least_ms=1).fill_null(0)


def _name(column: pa.Array) -> pa.Array:
    if not is_bytes(column.type):
        raise WrongValue(f"is {column.type}; it is STRING: cast it")
    return _within(_plain(column), NAME_BYTES_MAX, "NAME_BYTES_MAX")


def _attributes(column: pa.Array) -> pa.Array:
    if is_nested(column.type):
        check_nested(column.type)
        column = json_of(column) if len(column) else pa.array([], pa.string())
    if not _is_text(column.type):
        raise WrongValue(f"is {column.type}; it is STRING (a JSON object), MAP or STRUCT")
    return _within(_plain(column), ATTRIBUTES_BYTES_MAX, "the limit of attributes")


def _max_deliveries(column: pa.Array) -> pa.Array:
    counts = whole_numbers(column)
    wrong = pc.or_(pc.less(counts, 1), pc.greater(counts, DELIVERIES_MAX))
    refuse(wrong, column, lambda value: f"is {value}; it is 1 to DELIVERIES_MAX ({DELIVERIES_MAX})")
    return counts.fill_null(0).cast(pa.uint32())


def _queue(column: pa.Array) -> pa.Array:
    if not _is_text(column.type):
        raise WrongValue(f"is {column.type}; it is STRING")
    names = column.cast(pa.string())
    good = pc.match_substring_regex(names, r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,84}$")
    refuse(pc.invert(good.fill_null(False)), column, lambda value: f"is {value!r}, which is not the name of a queue")
    return names


_READERS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "data": _data,
    "priority": _priority,
    "delay": _delay,
    "visible_at": _visible_at,
    "group": _name,
    "attributes": _attributes,
    "dedup_id": _name,
    "max_deliveries": _max_deliveries,
    "queue": _queue,
}


_TEXT, _NUMBER = pa.string(), pa.int64()
# What a column that is nothing but null is taken for.
_VOID = {
    "data": pa.binary(),
    "priority": _NUMBER,
    "delay": _NUMBER,
    "visible_at": pa.timestamp("us", "UTC"),
    "group": _TEXT,
    "attributes": _TEXT,
    "dedup_id": _TEXT,
    "max_deliveries": _NUMBER,
    "queue": _TEXT,
}


def bytes_of(column: pa.Array) -> pa.Array:
    if not is_bytes(column.type):
        raise WrongValue(f"is {column.type}; it is BINARY or STRING: cast it, or make it JSON with to_json")
    return column.cast(pa.binary())


def times_of(column: pa.Array, *, least_ms: int) -> pa.Array:
    """Return times in milliseconds since 1970."""
    if not pa.types.is_timestamp(column.type):
        raise WrongValue(f"is {column.type}; it is TIMESTAMP")
    if column.type.tz is None:
        raise WrongValue("is a time without a zone (TIMESTAMP_NTZ); it is TIMESTAMP")
    at_ms = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    refuse(pc.less(at_ms, least_ms), column, lambda value: f"is {value}; it is after the beginning of 1970")
    return at_ms


def whole_numbers(column: pa.Array) -> pa.Array:
    if not pa.types.is_integer(column.type):
        raise WrongValue(f"is {column.type}; it is a whole number")
    return column.cast(pa.int64())


def _plain(column: pa.Array) -> pa.Array:
    return pc.fill_null(column.cast(pa.binary()), b"")


def _within(column: pa.Array, most: int, name: str) -> pa.Array:
    sizes = pc.binary_length(column)
    refuse(pc.greater(sizes, most), sizes, lambda size: f"has {size} bytes; {name} is {most}")
    return column


def refuse(wrong: pa.Array, column: pa.Array, say: Callable[[object], str]) -> None:
    """Raise for the first row that is wrong; a null in ``wrong`` is not."""
    if pc.any(wrong).as_py():
        row = pc.index(wrong, True).as_py()
        raise WrongValue(say(column[row].as_py()), row)


def is_bytes(kind: pa.DataType) -> bool:
    return bool(_is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
