"""Attributes as a MAP or a STRUCT become the JSON text that a message carries.

Texts are quoted once for each different text, not once for each row: names of attributes
and most of their values repeat.
"""

import json
from bisect import bisect_right

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

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
