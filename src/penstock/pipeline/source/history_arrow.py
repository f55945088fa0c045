"""Frames of the history as Arrow record batches: columns are wrapped or computed whole, without a loop over rows.

    frames of a log  ──▶  pieces (a frame, and which of its rows)  ──▶  one record batch

A batch is made of as many frames as fill it: where little happens a frame has a row or
two, and a batch for each would cost more than all its rows.

Laws of this file
-----------------
1. Only the columns that are wanted are made.
2. No dictionaries: Spark does not take them. What repeats is looked up as a whole.
3. Every column has the type that `contract.history_columns` gives it, also where it has no values.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute

from penstock.contract import messages
from penstock.contract.history_columns import FRAME_ROW_BITS, Column
from penstock.frame import Blobs
from penstock.store.embedded.history_frames import HistoryFrame
from penstock.store.history import BodyState, Coded

TIME = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
KINDS = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "TINYINT": pa.int8(),
    "TIMESTAMP": TIME,
    "BINARY": pa.binary(),
    "ARRAY<STRUCT<key: STRING, value: BINARY>>": HEADERS,
}
# By tier, and by the number of an outcome.
PRIORITIES = pa.array(messages.PRIORITIES)
OUTCOMES = pa.array([None, *messages.OUTCOMES], pa.string())


class Wanted(NamedTuple):
    """Which columns, and which rows of them."""

    columns: tuple[Column, ...]
    # By name; empty for all.
    queues: frozenset[str]
    from_ms: int | None
    until_ms: int | None


class Piece(NamedTuple):
    """Consecutive rows of a frame."""

    offset: int
    frame: HistoryFrame
    first: int
    stop: int


def schema_of(columns: Sequence[Column]) -> Any:
    return pa.schema([(column.name, KINDS[column.kind]) for column in columns])


def piece_of(offset: int, frame: HistoryFrame, *, start: int, end: int) -> Piece:
    """Return the rows of the frame at an offset of the log that are within a range of rows' offsets."""
    base, rows = offset << FRAME_ROW_BITS, frame.head.rows
    first = min(max(start - base, 0), rows)
    return Piece(offset, frame, first, max(min(end - base, rows), first))


def batch_of(pieces: Sequence[Piece], shard: int, wanted: Wanted) -> Any:
    """Return the wanted columns of all wanted rows; None if there are no such rows."""
    rows = Rows(pieces, shard)
    mask = _mask(rows, wanted)
    if mask is not None and not compute.any(mask).as_py():
        return None
    made = [_MADE[column.name](rows) for column in wanted.columns]
    batch = pa.RecordBatch.from_arrays(made, schema=schema_of(wanted.columns))
    return batch if mask is None else batch.filter(mask)


class Rows:
    """Some rows of some frames, as columns that are joined when they are asked for."""

    def __init__(self, pieces: Sequence[Piece], shard: int) -> None:
        self.pieces = pieces
        self.shard = shard
        self.count = sum(piece.stop - piece.first for piece in pieces)

    def numbers(self, name: str, kind: Any) -> Any:
        """Return a column of numbers as an array of a type of the same width."""
        parts = [getattr(piece.frame, name)[piece.first : piece.stop] for piece in self.pieces]
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        return pa.Array.from_buffers(kind, self.count, [None, pa.py_buffer(data)])

    def names(self) -> dict[int, str]:
        """Return the names of all queues that the frames have rows of."""
        named: dict[int, str] = {}
        for piece in self.pieces:
            named |= piece.frame.names()
        return named

    def words(self, name: str) -> Any:
        """Return a column of coded words as texts; null for the empty one."""
        coded: list[Coded | None] = [getattr(piece.frame, name) for piece in self.pieces]
        known: dict[bytes, int] = {b"": 0}
        parts = []
        for piece, column in zip(self.pieces, coded, strict=True):
            if column is None:
                parts.append(np.zeros(piece.stop - piece.first, np.int32))
            else:
                ours = np.array([known.setdefault(bytes(word), len(known)) for word in column.words], np.int32)
                parts.append(ours[np.frombuffer(column.codes[piece.first : piece.stop], np.int32)])
        if len(known) == 1:
            return pa.nulls(self.count, pa.string())
        return texts_of(list(known)).take(pa.array(np.concatenate(parts)))

    def kept(self, name: str, kind: Any) -> Any:
        """Return what a queue with full history keeps; null where nothing was kept."""
        arrays = [_kept(piece, getattr(piece.frame, name), kind) for piece in self.pieces]
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)

    def offsets(self) -> Any:
        parts = [
            np.arange(piece.first, piece.stop, dtype=np.int64) + (piece.offset << FRAME_ROW_BITS)
            for piece in self.pieces
        ]
        return pa.array(parts[0] if len(parts) == 1 else np.concatenate(parts))


def texts_of(words: Sequence[bytes]) -> Any:
    """Return words as texts, what is no UTF-8 in them replaced, and null for an empty one."""
    return pa.array([word.decode(errors="replace") or None for word in words], pa.string())


def micros(at_ms: Any) -> Any:
    """Return milliseconds since 1970 as times."""
    return compute.multiply(at_ms, pa.scalar(1_000, pa.int64())).view(TIME)


def null_if_empty(column: Any) -> Any:
    return compute.if_else(compute.equal(compute.binary_length(column), 0), pa.scalar(None, column.type), column)


def _kept(piece: Piece, column: Blobs | None, kind: Any) -> Any:
    states, count = piece.frame.body_state, piece.stop - piece.first
    if column is None or states is None:
        return pa.nulls(count, kind)
    buffers = [None, pa.py_buffer(memoryview(column.offsets)), pa.py_buffer(column.data)]
    blobs = pa.Array.from_buffers(kind, len(column), buffers).slice(piece.first, count)
    state = pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(states[piece.first : piece.stop])])
    return compute.if_else(compute.equal(state, int(BodyState.KEPT)), blobs, pa.scalar(None, kind))


def _mask(rows: Rows, wanted: Wanted) -> Any:
    """Return which rows are wanted; None if all are."""
    masks = []
    if wanted.queues:
        named = rows.names()
        chosen = [number for number, name in named.items() if name in wanted.queues]
        if len(chosen) < len(named):
            masks.append(compute.is_in(rows.numbers("queue", pa.uint32()), value_set=pa.array(chosen, pa.uint32())))
    heads = [piece.frame.head for piece in rows.pieces]
    if wanted.from_ms is not None and min(head.settled_from_ms for head in heads) < wanted.from_ms:
        masks.append(compute.greater_equal(rows.numbers("settled_at_ms", pa.int64()), wanted.from_ms))
    if wanted.until_ms is not None and max(head.settled_to_ms for head in heads) >= wanted.until_ms:
        masks.append(compute.less(rows.numbers("settled_at_ms", pa.int64()), wanted.until_ms))
    if not masks:
        return None
    whole = masks[0]
    for mask in masks[1:]:
        whole = compute.and_(whole, mask)
    return whole


def is_wanted(frame: HistoryFrame, wanted: Wanted) -> bool:
    """Whether a frame may have wanted rows, by what it says of all of them."""
    head = frame.head
    if not head.rows:
        return False
    if wanted.from_ms is not None and head.settled_to_ms < wanted.from_ms:
        return False
    if wanted.until_ms is not None and head.settled_from_ms >= wanted.until_ms:
        return False
    return not wanted.queues or any(name in wanted.queues for name in frame.names().values())


def _queue(rows: Rows) -> Any:
    named = rows.names()
    numbers = pa.array(list(named), pa.uint32())
    return pa.array(list(named.values())).take(compute.index_in(rows.numbers("queue", pa.uint32()), value_set=numbers))


def _key(rows: Rows) -> Any:
    parts = [_keys(piece) for piece in rows.pieces]
    return pa.array(parts[0] if len(parts) == 1 else np.concatenate(parts))


def _keys(piece: Piece) -> Any:
    frame, rows = piece.frame, slice(piece.first, piece.stop)
    if frame.key is not None:
        return np.frombuffer(frame.key[rows], np.int64)
    return np.frombuffer(frame.number[rows], np.int64) << 3 | np.frombuffer(frame.lane[rows], np.uint8)


def _received(rows: Rows, name: str) -> Any:
    """A time of which 0 means never: what says so becomes the bits of validity."""
    at_ms = rows.numbers(name, pa.int64())
    is_known = compute.not_equal(at_ms, 0)
    return pa.Array.from_buffers(TIME, rows.count, [is_known.buffers()[1], micros(at_ms).buffers()[1]])


_MADE: dict[str, Callable[[Rows], Any]] = {
    "queue": _queue,
    "queue_id": lambda rows: rows.numbers("queue", pa.uint32()).cast(pa.int64()),
    "first_queue": lambda rows: rows.numbers("home", pa.uint32()).cast(pa.int64()),
    # A tier, a number and a count of deliveries are never so large that the sign mattered.
    "sent_tier": lambda rows: rows.numbers("lane", pa.int8()),
    "number": lambda rows: rows.numbers("number", pa.int64()),
    "key": _key,
    "tier": lambda rows: rows.numbers("tier", pa.int8()),
    "priority": lambda rows: PRIORITIES.take(rows.numbers("tier", pa.int8())),
    "sent_at": lambda rows: micros(rows.numbers("sent_at_ms", pa.int64())),
    "first_received_at": lambda rows: _received(rows, "first_leased_ms"),
    "last_received_at": lambda rows: _received(rows, "last_leased_ms"),
    "settled_at": lambda rows: micros(rows.numbers("settled_at_ms", pa.int64())),
    "delivery_count": lambda rows: rows.numbers("deliveries", pa.int32()),
    "outcome": lambda rows: OUTCOMES.take(rows.numbers("ending", pa.int8())),
    "group": lambda rows: rows.words("group"),
    "error": lambda rows: rows.words("error"),
    "data": lambda rows: rows.kept("body", pa.binary()),
    "attributes": lambda rows: null_if_empty(rows.kept("attributes", pa.string())),
    "shard": lambda rows: pa.array(np.full(rows.count, rows.shard, np.int32)),
    "offset": Rows.offsets,
}
