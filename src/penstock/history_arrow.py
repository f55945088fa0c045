"""Columns of the history, and of what is in a queue, as Arrow: the one way from what stores keep to REST and to Spark.

    page of a store      ─┐            ┌── dictionaries ──▶ an Arrow stream of REST ──┐
    frames of a folder   ─┼── fields ──┤                                              │
    rows of PostgreSQL   ─┘            └── plain columns ──▶ Spark  ◀── plain columns ┘

REST has numbers as wide as they are kept, and words that repeat as dictionaries. Spark takes neither unsigned numbers
nor dictionaries: its columns have the types that `contract.history_columns` names, and null where there is no word.

Laws of this file
-----------------
1. Only the columns that are wanted are made, whole: nothing loops over rows.
2. Every column has its type also where it has no values.
3. It needs the standard library and pyarrow: executors have no msgspec, and servers no numpy.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute

from penstock.contract.history_columns import BodyState, Column, Form
from penstock.contract.messages import NUMBERED_OUTCOMES, PRIORITIES, STATES

TIME = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
KINDS = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "TINYINT": pa.int8(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": TIME,
    "BINARY": pa.binary(),
    "ARRAY<STRUCT<key: STRING, value: BINARY>>": HEADERS,
}
_MS = pa.timestamp("ms", tz="UTC")
# By the codes of `frame.py`.
_NUMBERS = {"B": pa.uint8(), "I": pa.uint32(), "Q": pa.uint64(), "i": pa.int32(), "q": pa.int64()}
# By tier, by the number of an outcome, and by that of a state, of which 0 stands for none.
_WORDS = {
    Form.PRIORITY: pa.array(PRIORITIES),
    Form.OUTCOME: pa.array(NUMBERED_OUTCOMES),
    Form.STATE: pa.array(["", *STATES]),
}


class Rows(Protocol):
    """Some rows, field by field, as a store keeps them."""

    # The names of the queues of these rows, by number; there may be more.
    names: Mapping[int, str]

    def __len__(self) -> int: ...

    def field(self, name: str) -> Any:
        """Return a field as an array. Words are a dictionary of bytes, with an empty one for none, or plain texts."""
        ...


class Part(NamedTuple):
    """Consecutive rows of a page or of a frame, whose attributes have the names of fields."""

    source: Any
    first: int
    stop: int


class KeptRows:
    """The rows of some parts, whose fields are joined when they are asked for; a field of None has nothing."""

    def __init__(self, parts: Sequence[Part], names: Mapping[int, str]) -> None:
        self._parts = parts
        self.names = names
        self._count = sum(part.stop - part.first for part in parts)

    def __len__(self) -> int:
        return self._count

    def field(self, name: str) -> Any:
        if name in {"group", "error"}:
            return self._words(name)
        if name in {"body", "attributes"}:
            return _joined([_kept(part, name) for part in self._parts])
        if name == "key":
            return self._keys()
        parts = [getattr(source, name)[first:stop] for source, first, stop in self._parts]
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        return pa.Array.from_buffers(_NUMBERS[parts[0].format], self._count, [None, pa.py_buffer(data)])

    def _keys(self) -> Any:
        """Return the places of messages in the queue they left: where none was moved, those of the send."""
        have_keys = [part.source.key is not None for part in self._parts]
        if any(have_keys) and len(have_keys) > 1:
            return _joined([KeptRows([part], self.names).field("key") for part in self._parts])
        if any(have_keys):
            ((source, first, stop),) = self._parts
            return pa.Array.from_buffers(pa.uint64(), self._count, [None, pa.py_buffer(source.key[first:stop])])
        numbers = compute.shift_left(self.field("number"), pa.scalar(3, pa.uint64()))
        return compute.bit_wise_or(numbers, self.field("sent_tier").cast(pa.uint64()))

    def _words(self, name: str) -> Any:
        if all(getattr(part.source, name) is None for part in self._parts):
            return _in_words(pa.repeat(pa.scalar(0, pa.int32()), self._count), pa.array([b""]))
        return _joined([_coded(part, name) for part in self._parts])


def _joined(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _coded(part: Part, name: str) -> Any:
    column, count = getattr(part.source, name), part.stop - part.first
    if column is None:
        return _in_words(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([b""]))
    codes = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(column.codes[part.first : part.stop])])
    return _in_words(codes, _blobs(column.words))


def _kept(part: Part, name: str) -> Any:
    """Return bodies or attributes; null where they were not kept."""
    column, count = getattr(part.source, name), part.stop - part.first
    if column is None:
        return pa.nulls(count, pa.binary())
    blobs = _blobs(column).slice(part.first, count)
    # What is in a queue has a body always.
    states = getattr(part.source, "body_state", None)
    if states is None:
        return blobs
    state = pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(states[part.first : part.stop])])
    return compute.if_else(compute.equal(state, int(BodyState.KEPT)), blobs, pa.scalar(None, pa.binary()))


def _blobs(column: Any) -> Any:
    offsets, data = pa.py_buffer(memoryview(column.offsets)), pa.py_buffer(memoryview(column.data))
    return pa.Array.from_buffers(pa.binary(), len(column), [None, offsets, data])


def _in_words(codes: Any, words: Any) -> Any:
    # Signed indices are what every reader of Arrow takes.
    return pa.DictionaryArray.from_arrays(codes.cast(pa.int32()), words)


def record_batch(
    rows: Rows, columns: Sequence[Column], given: Mapping[str, Any] | None = None, *, dictionary: bool
) -> Any:
    """Return columns of rows: as REST has them, with dictionaries, or as Spark does, without.

    ``given`` has columns that are known otherwise: an array, or a value that is the same in all rows.
    """
    given = given or {}
    found = {column.name: _made(rows, column) for column in columns if column.name not in given}
    if not dictionary:
        return plain_batch({**found, **given}, columns, len(rows))
    for name, value in given.items():
        found[name] = _repeated(value, len(rows))
    return pa.RecordBatch.from_arrays([found[column.name] for column in columns], [column.name for column in columns])


def _repeated(value: str | int, count: int) -> Any:
    if isinstance(value, int):
        return pa.repeat(pa.scalar(value, pa.uint32()), count)
    return _in_words(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([value]))


def _made(rows: Rows, column: Column) -> Any:
    """Return a column as REST has it."""
    found = rows.field(column.field)
    match column.form:
        case Form.PLAIN:
            return found
        case Form.TIME:
            return found.view(_MS)
        case Form.MAYBE_TIME:
            return compute.if_else(compute.equal(found, 0), pa.scalar(None, pa.int64()), found).view(_MS)
        case Form.QUEUE:
            return _named(found, rows.names)
        case Form.WORD | Form.TEXT:
            if not pa.types.is_dictionary(found.type):
                return _texts(found)
            kind = pa.binary() if column.form is Form.WORD else pa.string()
            return _in_words(found.indices, found.dictionary.view(kind))
    return in_words(found, column.form)


def in_words(numbers: Any, form: Form) -> Any:
    """Return tiers, outcomes or states as the words that they stand for."""
    return _in_words(numbers, _WORDS[form])


def _named(numbers: Any, names: Mapping[int, str]) -> Any:
    # Two queues may have had one name, and a word of a dictionary is there once.
    words = sorted(set(names.values()))
    places = {word: place for place, word in enumerate(words)}
    word_of = pa.array([places[name] for name in names.values()], pa.int32())
    known = compute.index_in(numbers, value_set=pa.array(list(names), numbers.type))
    return _in_words(word_of.take(known), pa.array(words, pa.string()))


def _texts(column: Any) -> Any:
    """Return texts that may be kept as bytes; null where they are empty."""
    try:
        found = column.cast(pa.string())
    except pa.ArrowInvalid:
        # Some of it is no UTF-8, which is rare.
        return _looked_up(column.dictionary_encode())
    return compute.if_else(compute.equal(compute.binary_length(found), 0), pa.scalar(None, pa.string()), found)


def write_stream(batch: Any, metadata: Mapping[str, object]) -> bytes:
    """Return a batch as an Arrow IPC stream, with what else there is to say in the metadata of the schema."""
    batch = batch.replace_schema_metadata({name: str(value) for name, value in metadata.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def read_stream(content: bytes) -> tuple[list[Any], dict[str, str]]:
    """Return the batches of a stream that have rows, and its metadata."""
    with pa.ipc.open_stream(pa.py_buffer(content)) as stream:
        metadata = {name.decode(): value.decode() for name, value in stream.schema.metadata.items()}
        return [batch for batch in stream if batch.num_rows], metadata


def plain_batch(found: Mapping[str, Any], columns: Sequence[Column], rows: int) -> Any:
    """Return columns as Spark has them, of such as REST has, or of values; null where there is none."""
    arrays = [_plain(found.get(column.name), KINDS[column.kind], rows) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def schema_of(columns: Iterable[Column]) -> Any:
    return pa.schema([(column.name, KINDS[column.kind]) for column in columns])


def _plain(found: Any, kind: Any, rows: int) -> Any:
    if not isinstance(found, pa.Array):
        return pa.nulls(rows, kind) if found is None else pa.repeat(pa.scalar(found, kind), rows)
    if found.type == kind:
        return found
    if pa.types.is_dictionary(found.type):
        return _looked_up(found)
    if found.type == _MS:
        return compute.multiply(found.view(pa.int64()), pa.scalar(1_000, pa.int64())).view(TIME)
    # No number of ours is so large that the sign matters.
    return found.view(kind) if found.type.bit_width == kind.bit_width else found.cast(kind)


def _looked_up(column: Any) -> Any:
    """Return coded words as texts: what is no UTF-8 in them is replaced, and an empty one is null."""
    words = column.dictionary.cast(pa.binary()).to_pylist()
    return pa.array([(word or b"").decode(errors="replace") or None for word in words], pa.string()).take(
        column.indices
    )
