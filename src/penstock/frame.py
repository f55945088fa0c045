"""The columnar frame: columns of numbers and byte strings, in a journal record or on the wire.

Everything is little-endian:

     0      4         6       8            8 + 8 · columns
    ┌──────┬─────────┬───────┬─ ─ ─ ─ ─ ─ ┬──────────┬──────────┬─ ─ ─
    │ rows │ columns │ flags │ directory  │ column   │ column   │
    │ u32  │ u16     │ u16 0 │            │          │          │
    └──────┴─────────┴───────┴─ ─ ─ ─ ─ ─ ┴──────────┴──────────┴─ ─ ─

The directory has 8 bytes for each column:

     0      1         4            8
    ┌──────┬─────────┬────────────┐
    │ kind │ 0  0  0 │ size in    │    size: without the zeros after the column
    │ u8   │         │ bytes, u32 │
    └──────┴─────────┴────────────┘

A column of numbers, of the kind `b B h H i I q Q` (the type codes of `array`,
one letter as one byte):

    ┌────────┬────────┬─ ─ ─┬────────┬───────────────┐
    │ row 0  │ row 1  │     │ last   │ zeros up to 8 │
    └────────┴────────┴─ ─ ─┴────────┴───────────────┘

A column of blobs, of the kind `*`:

     0                       4 · (rows + 1)
    ┌───────────┬─ ─ ─┬─────┬───────────────┬────────────────────┬───────────────┐
    │ 0         │     │ end │ zeros up to 8 │ blobs back to back │ zeros up to 8 │
    │ i32       │     │ i32 │               │                    │               │
    └───────────┴─ ─ ─┴─────┴───────────────┴────────────────────┴───────────────┘

Row i of it is the bytes from offset i to offset i + 1. This is Arrow's own
layout of numbers and of binary, and every array of it begins at a multiple of
8 from the start of the frame: Arrow wraps a column, and nobody loops.

Laws of the file
----------------
1. `unpack` copies nothing: what it returns are views into what it was given.
2. Every column has as many rows as the frame, so one number says it all.
3. A frame is read to its last byte. Anything else than what `pack` may write
   raises `BadFrame`, before a size it claims is used for anything.

Not done here: a checksum, as the CRC of the record batch covers the frame; and
names of columns, as the kind and version of the event say what they are.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias, overload

Buffer: TypeAlias = bytes | bytearray | memoryview
Numbers: TypeAlias = "array[int] | memoryview"
Column: TypeAlias = "Numbers | Blobs"

_HEAD = struct.Struct("<IHH")
# The kind and the three zeros after it are read as one number, so a stray bit in the zeros is an unknown kind.
_ENTRY = struct.Struct("<II")
_TWO_COLUMNS = struct.Struct("<IHHIIII")
_ALIGN = 8
_OFFSET_BYTES = 4
_ITEM_BYTES = {ord(code): array(code).itemsize for code in "bBhHiIqQ"}
_BLOBS = ord("*")
_BYTES = ord("B")
_ZEROS = tuple(bytes(-size % _ALIGN) for size in range(_ALIGN))
assert list(_ITEM_BYTES.values()) == [1, 1, 2, 2, 4, 4, 8, 8]
assert _HEAD.size == _ENTRY.size == _ALIGN


class BadFrame(Exception):
    """These bytes are not a whole, undamaged frame."""


def size_of(texts: "Sequence[Buffer]") -> int:
    """The bytes of all texts together."""
    return texts.size_bytes if isinstance(texts, Blobs) else sum(map(len, texts))


class Blobs(Sequence[memoryview]):
    """A column of byte strings. Row i is ``data`` from ``offsets[i]`` to ``offsets[i + 1]``."""

    __slots__ = ("offsets", "data")

    def __init__(self, offsets: Numbers, data: memoryview) -> None:
        self.offsets = offsets
        self.data = data

    @classmethod
    def of(cls, bodies: Sequence[Buffer]) -> "Blobs":
        """Copy bodies back to back. Raises `OverflowError` from 2 GiB on, before copying."""
        offsets = array("i", list(accumulate(map(len, bodies), initial=0)))
        data = memoryview(b"".join(bodies))
        assert len(data) == offsets[-1], "a body counts in bytes"
        return cls(offsets, data)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def size_bytes(self) -> int:
        """All of it, without looking at each."""
        return self.offsets[-1] - self.offsets[0]

    @overload
    def __getitem__(self, row: int) -> memoryview: ...

    @overload
    def __getitem__(self, row: slice) -> list[memoryview]: ...

    def __getitem__(self, row: int | slice) -> memoryview | list[memoryview]:
        if isinstance(row, slice):
            return list(self)[row]
        if row < 0:
            row += len(self)
        return self.data[self.offsets[row] : self.offsets[row + 1]]

    def part(self, start: int, end: int) -> "Blobs":
        """Return the rows from ``start`` to before ``end``, to be read: nothing is sliced before it is asked for."""
        return Blobs(self.offsets[start : end + 1], self.data)

    def __iter__(self) -> Iterator[memoryview]:
        data = self.data
        return (data[start:end] for start, end in pairwise(self.offsets))


def pack(columns: Sequence[Column]) -> bytes:
    """Return a frame of equally long columns."""
    rows = len(columns[0]) if columns else 0
    front: list[Buffer] = [_HEAD.pack(rows, len(columns), 0)]
    parts: list[Buffer] = []
    for column in columns:
        assert len(column) == rows, "every column has as many rows as the frame"
        front.append(_lay(column, parts))
    return b"".join(front + parts)


def pack_bytes_and_blobs(numbers: bytes, blobs: Blobs) -> bytes:
    """Return what `pack` does of a column of the kind `B` and one of blobs, for a third of the price."""
    rows, offsets, data = len(numbers), blobs.offsets, blobs.data
    assert len(offsets) == rows + 1, "every column has as many rows as the frame"
    zeros = _ZEROS[(rows + 1) * _OFFSET_BYTES % _ALIGN]
    size = (rows + 1) * _OFFSET_BYTES + len(zeros) + len(data)
    front = _TWO_COLUMNS.pack(rows, 2, 0, _BYTES, rows, _BLOBS, size)
    return b"".join((front, numbers, _ZEROS[rows % _ALIGN], offsets, zeros, data, _ZEROS[size % _ALIGN]))


def unpack(frame: Buffer) -> list[memoryview | Blobs]:
    """Return the columns of a frame as views into it, numbers cast to their type."""
    view = memoryview(frame)
    assert view.itemsize == 1
    if len(view) < _HEAD.size:
        raise BadFrame("fewer bytes than a head")
    rows, count, flags = _HEAD.unpack_from(view)
    position = _HEAD.size + count * _ENTRY.size
    if flags or position > len(view) or (rows and not count):
        raise BadFrame(f"{len(view)} bytes cannot hold {count} columns of {rows} rows with flags {flags:#x}")
    columns: list[memoryview | Blobs] = []
    for kind, size in _ENTRY.iter_unpack(view[_HEAD.size : position]):
        end = position + size
        if end > len(view):
            raise BadFrame(f"a column of {size} bytes runs past the frame")
        columns.append(_read_column(kind, rows, view[position:end]))
        position = _skip_zeros(view, end)
    if position != len(view):
        raise BadFrame(f"{len(view) - position} bytes follow the last column")
    return columns


def _lay(column: Column, parts: list[Buffer]) -> bytes:
    """Add a column and its zeros to ``parts`` and return its entry in the directory."""
    if isinstance(column, Blobs):
        return _lay_blobs(column, parts)
    kind = ord(column.typecode if isinstance(column, array) else column.format)
    size = len(column) * _ITEM_BYTES[kind]
    parts += (memoryview(column), _ZEROS[size % _ALIGN])
    return _ENTRY.pack(kind, size)


def _lay_blobs(blobs: Blobs, parts: list[Buffer]) -> bytes:
    offsets, data = memoryview(blobs.offsets), blobs.data
    assert offsets.format == "i"
    zeros = _ZEROS[offsets.nbytes % _ALIGN]
    parts += (offsets, zeros, data, _ZEROS[len(data) % _ALIGN])
    return _ENTRY.pack(_BLOBS, offsets.nbytes + len(zeros) + len(data))


def _read_column(kind: int, rows: int, column: memoryview) -> memoryview | Blobs:
    if kind == _BLOBS:
        return _read_blobs(rows, column)
    if kind not in _ITEM_BYTES:
        raise BadFrame(f"a column of the unknown kind {kind:#x}")
    if len(column) != rows * _ITEM_BYTES[kind]:
        raise BadFrame(f"{len(column)} bytes of {chr(kind)!r} are not {rows} rows")
    return column.cast(chr(kind))  # type: ignore[call-overload, no-any-return]


def _read_blobs(rows: int, column: memoryview) -> Blobs:
    offsets_end = (rows + 1) * _OFFSET_BYTES
    data_from = _skip_zeros(column, offsets_end)
    if data_from > len(column):
        raise BadFrame(f"{len(column)} bytes cannot hold the offsets of {rows} blobs")
    offsets, data = column[:offsets_end].cast("i"), column[data_from:]
    # A list that is in order already is sorted in one pass of C, far below the cost of taking the slices.
    # In order, from 0 to the end of the data: so every row is inside.
    ends = offsets.tolist()
    if ends[0] != 0 or ends[-1] != len(data) or ends != sorted(ends):
        raise BadFrame("the offsets of blobs are out of order or outside")
    return Blobs(offsets, data)


def _skip_zeros(view: memoryview, position: int) -> int:
    """Return where the next array begins. It may lie beyond the end: that is the caller's to see."""
    after = position + -position % _ALIGN
    if any(view[position:after]):
        raise BadFrame("something other than zeros between two columns")
    return after
