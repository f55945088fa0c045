"""Rows of the table `history` that stand for many messages each, as Arrow columns of messages.

The store writes what was acked together as one row, a *pack* (`store/postgres/unpacking.py`). What differs between its
messages comes in one column, since each column costs rows that are no packs as much as a value:

    ┌───────┬─ ─ ─ ─ ─ ┬─ ─ ─ ─ ─ ─ ─ ─┬─ ─ ─ ─ ─ ─ ─┬─ ─ ─ ─ ─ ─ ─ ─ ─ ─┐
    │ count │ keys     │ times of send │ body sizes  │ attribute sizes   │    big-endian; those parts that are wanted
    │ 4     │ 8 each   │ 8 each        │ 4 each      │ 4 each            │
    └───────┴─ ─ ─ ─ ─ ┴─ ─ ─ ─ ─ ─ ─ ─┴─ ─ ─ ─ ─ ─ ─┴─ ─ ─ ─ ─ ─ ─ ─ ─ ─┘

Laws of this file
-----------------
1. Nothing loops over messages, nor over packs: words of 4 bytes are gathered from the whole column at once.
2. Bodies are not copied. They stand back to back in the column of bodies, and only get more ends.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

PACK = "pack"
_ZEROS = "decode(repeat('00', 4 * packed), 'hex')"


class Part(NamedTuple):
    """A part of the column: how it is asked for, how many words of 4 bytes a message has in it, and who needs it."""

    value: str
    words: int
    needed_by: frozenset[str]


_PARTS = (
    Part("keys", 2, frozenset({"key", "home_key", "tier"})),
    Part("sent_ats_ms", 2, frozenset({"sent_at_ms"})),
    Part(f"CASE WHEN body IS NULL THEN {_ZEROS} ELSE body_sizes END", 1, frozenset({"body"})),
    Part(f"CASE WHEN attributes IS NULL THEN {_ZEROS} ELSE attribute_sizes END", 1, frozenset({"attributes"})),
)


def pack_field(fields: Mapping[str, str]) -> dict[str, str]:
    """Return what to ask for besides these fields, so that their packs can be unpacked."""
    parts = " || ".join(["int4send(packed)", *(part.value for part in _parts_of(fields))])
    return {PACK: f"CASE WHEN packed IS NOT NULL THEN {parts} END"}


def _parts_of(fields: Mapping[str, Any]) -> list[Part]:
    return [part for part in _PARTS if not part.needed_by.isdisjoint(fields)]


def counts_of(rows: Any) -> Any:
    """Return how many messages each row stands for."""
    return Packs(rows).counts


def unpacked(rows: Any, *, most: int, start: int, end: int) -> Iterator[Any]:
    """Yield batches of about so many messages: those of these rows from an offset on and before another."""
    if PACK not in rows.schema.names or rows.column(PACK).null_count == rows.num_rows:
        # Each is one message, and they were asked for by their offsets.
        yield rows
        return
    ends = np.cumsum(counts_of(rows))
    first, taken = 0, 0
    while first < rows.num_rows:
        stop = max(int(np.searchsorted(ends, taken + most, "right")), first + 1)
        batch = Packs(rows.slice(first, stop - first)).messages()
        offsets = _numbers(batch.column("at_offset"), np.int64)
        low, high = np.searchsorted(offsets, (start, end))
        if low < high:
            yield batch.slice(low, high - low)
        first, taken = stop, int(ends[stop - 1])


class Packs:
    """Some rows, of which some are packs."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self.counts = np.ones(rows.num_rows, np.int64)
        self._words = np.empty(0, ">u4")
        self._bases = np.empty(0, np.int64)
        if PACK not in rows.schema.names:
            return
        column = rows.column(PACK)
        self._is_pack = _bits(column)
        ends = _ends(column)
        _, _, data = column.buffers()
        if data is not None and self._is_pack.any():
            self._words = np.frombuffer(data, ">u4", count=ends[-1] // 4)
            # Where each pack has its first word.
            self._bases = ends[:-1][self._is_pack] // 4
            self.counts[self._is_pack] = self._words[self._bases]

    def messages(self) -> Any:
        """Return the same fields with a row for each message."""
        self._total = int(self.counts.sum())
        self._of_pack = np.repeat(self._is_pack, self.counts)
        # The place of each message in its row.
        self._places = np.arange(self._total) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        names = [name for name in self._rows.schema.names if name != PACK]
        self._parts = dict(self._gathered(names))
        return pa.RecordBatch.from_arrays([self._column(name) for name in names], names)

    def _gathered(self, names: list[str]) -> Iterator[tuple[frozenset[str], Any]]:
        """Yield what packs say of each of their messages, a part at a time."""
        counts = self.counts[self._is_pack]
        places = self._places[self._of_pack]
        begins = self._bases + 1
        for part in _parts_of(dict.fromkeys(names)):
            at = np.repeat(begins, counts) + part.words * places
            found = self._words[at].astype(np.int64)
            if part.words == 2:
                found = found << 32 | self._words[at + 1]
            yield part.needed_by, found
            begins = begins + part.words * counts

    def _column(self, name: str) -> Any:
        column = self._rows.column(name)
        if name == "at_offset":
            return pa.array(self._repeated(_numbers(column, np.int64)) + self._places)
        if name in {"body", "attributes"}:
            return self._texts(column, self._part(name))
        if column.null_count == len(column):
            return pa.nulls(self._total, column.type)
        found = self._part(name)
        if found is None:
            return column.take(pa.array(np.repeat(np.arange(len(column)), self.counts)))
        values = self._repeated(_numbers(column, column.type.to_pandas_dtype()))
        values[self._of_pack] = found & 7 if name == "tier" else found
        return pa.array(values)

    def _part(self, name: str) -> Any:
        return next((found for needed_by, found in self._parts.items() if name in needed_by), None)

    def _repeated(self, values: Any) -> Any:
        return np.repeat(values, self.counts)

    def _texts(self, column: Any, sizes_of_packs: Any) -> Any:
        if column.null_count == len(column):
            return pa.nulls(self._total, column.type)
        ends = _ends(column)
        sizes = self._repeated(np.diff(ends))
        sizes[self._of_pack] = sizes_of_packs
        offsets = np.zeros(self._total + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        offsets += ends[0]
        is_there = None
        if column.null_count:
            is_there = pa.array(np.repeat(_bits(column), self.counts)).buffers()[1]
        return pa.Array.from_buffers(
            column.type, self._total, [is_there, pa.py_buffer(offsets), column.buffers()[2] or pa.py_buffer(b"")]
        )


def _bits(column: Any) -> Any:
    """Return which rows are not null."""
    return column.is_valid().to_numpy(zero_copy_only=False)


def _ends(column: Any) -> Any:
    """Return where the first text of a column begins, and behind it where each ends."""
    ends = np.frombuffer(column.buffers()[1], np.int32, count=column.offset + len(column) + 1)
    return ends[column.offset :].astype(np.int64)


def _numbers(column: Any, kind: Any) -> Any:
    """Return a column of numbers without nulls."""
    found = np.frombuffer(column.buffers()[1], kind, count=column.offset + len(column))
    return found[column.offset :]
