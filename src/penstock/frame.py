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
8 from the start of the frame: Arrow wraps a column, without a loop.

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
from itertools import accumulate
from typing import Any, TypeAlias, overload

Buffer: TypeAlias = bytes | bytearray | memoryview
Numbers: TypeAlias = "array[int] | memoryview"
# Numbers, bytes as numbers of the kind `B`, or byte strings.
Column: TypeAlias = "Numbers | bytes | Sequence[Buffer]"

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
        offsets, data = _back_to_back(bodies)
        return cls(offsets, memoryview(data))

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
        assert end < len(self.offsets), "these rows are not in this column"
        return Blobs(self.offsets[start : end + 1], self.data)

    def __iter__(self) -> Iterator[memoryview]:
        return map(self.data.__getitem__, map(slice, self.offsets, self.offsets[1:]))


def pack(columns: Sequence[Column]) -> bytes:
    """Return a frame of equally long columns.

    It has few helpers: a frame often has one row, and then a call costs more than what it does.
    """
    rows = -1
    entries: list[bytes] = []
    parts: list[Buffer | Numbers] = []
    for column in columns:
        if isinstance(column, array | memoryview | bytes):
            numbers = memoryview(column)
            count, kind, size = len(numbers), ord(numbers.format), numbers.nbytes
            assert size == count * _ITEM_BYTES[kind]
            parts += (numbers, _ZEROS[size % _ALIGN])
        else:
            offsets, data = (column.offsets, column.data) if isinstance(column, Blobs) else _back_to_back(column)
            if offsets[0] or offsets[-1] != len(data):
                # Part of a larger column: only what is in it is written.
                offsets, data = array("i", [each - offsets[0] for each in offsets]), data[offsets[0] : offsets[-1]]
            count, kind, size = len(offsets) - 1, _BLOBS, len(offsets) * _OFFSET_BYTES
            zeros = _ZEROS[size % _ALIGN]
            size += len(zeros) + len(data)
            parts += (offsets, zeros, data, _ZEROS[size % _ALIGN])
        assert rows in (count, -1), "every column has as many rows as the frame"
        rows = count
        entries.append(_ENTRY.pack(kind, size))
    return b"".join((_HEAD.pack(max(rows, 0), len(columns), 0), *entries, *parts))


def _back_to_back(texts: Sequence[Buffer]) -> tuple[Numbers, Buffer]:
    """Return the offsets and the data of a column of blobs. Raises `OverflowError` from 2 GiB on, before copying."""
    offsets = array("i", list(accumulate(map(len, texts), initial=0)))
    data = b"".join(texts)
    assert len(data) == offsets[-1], "a text counts in bytes"
    return offsets, data


def pack_bytes_and_blobs(numbers: bytes, blobs: Blobs) -> bytes:
    """Return what `pack` does of a column of the kind `B` and one of blobs, for a third of the price."""
    rows, offsets, data = len(numbers), blobs.offsets, blobs.data
    assert len(offsets) == rows + 1, "every column has as many rows as the frame"
    zeros = _ZEROS[(rows + 1) * _OFFSET_BYTES % _ALIGN]
    size = (rows + 1) * _OFFSET_BYTES + len(zeros) + len(data)
    front = _TWO_COLUMNS.pack(rows, 2, 0, _BYTES, rows, _BLOBS, size)
    return b"".join((front, numbers, _ZEROS[rows % _ALIGN], offsets, zeros, data, _ZEROS[size % _ALIGN]))


@overload
def unpack(frame: Buffer) -> list[memoryview | Blobs]: ...


@overload
def unpack(frame: Buffer, kinds: bytes) -> list[Any]: ...


def unpack(frame: Buffer, kinds: bytes | None = None) -> list[Any]:
    """Return the columns of a frame as views into it, numbers cast to their type.

    With ``kinds``, a frame with other columns raises `BadFrame`: one letter for each, `*` for blobs.
    """
    view = memoryview(frame)
    assert view.itemsize == 1
    if len(view) < _HEAD.size:
        raise BadFrame("fewer bytes than a head")
    rows, count, flags = _HEAD.unpack_from(view)
    position = _HEAD.size + count * _ENTRY.size
    if flags or position > len(view) or (rows and not count):
        raise BadFrame(f"{len(view)} bytes cannot hold {count} columns of {rows} rows with flags {flags:#x}")
    if kinds is not None and (found := bytes(view[_HEAD.size : position : _ENTRY.size])) != kinds:
        raise BadFrame(f"columns of the kinds {found!r}; wanted are {kinds!r}")
    columns: list[memoryview | Blobs] = []
    for kind, size in _ENTRY.iter_unpack(view[_HEAD.size : position]):
        end = position + size
        if end > len(view):
            raise BadFrame(f"a column of {size} bytes runs past the frame")
        column = view[position:end]
        # Numbers without a helper, as in `pack`.
        is_numbers = kind in _ITEM_BYTES and size == rows * _ITEM_BYTES[kind]
        columns.append(column.cast(chr(kind)) if is_numbers else _read_blobs(kind, rows, column))  # type: ignore[call-overload]
        # This may lie beyond the end: then it is not where the frame ends.
        position = end + -end % _ALIGN
        if any(view[end:position]):
            raise BadFrame("something other than zeros between two columns")
    if position != len(view):
        raise BadFrame(f"{len(view) - position} bytes follow the last column")
    return columns


def _read_blobs(kind: int, rows: int, column: memoryview) -> Blobs:
    if kind in _ITEM_BYTES:
        raise BadFrame(f"{len(column)} bytes of {chr(kind)!r} are not {rows} rows")
    if kind != _BLOBS:
        raise BadFrame(f"a column of the unknown kind {kind:#x}")
    offsets_end = (rows + 1) * _OFFSET_BYTES
    data_from = offsets_end + -offsets_end % _ALIGN
    if data_from > len(column):
        raise BadFrame(f"{len(column)} bytes cannot hold the offsets of {rows} blobs")
    if any(column[offsets_end:data_from]):
        raise BadFrame("something other than zeros before the blobs")
    offsets, data = column[:offsets_end].cast("i"), column[data_from:]
    # A list that is in order already is sorted in one pass of C, far below the cost of taking the slices.
    # In order, from 0 to the end of the data: so every row is inside.
    ends = offsets.tolist()
    if ends[0] != 0 or ends[-1] != len(data) or ends != sorted(ends):
        raise BadFrame("the offsets of blobs are out of order or outside")
    return Blobs(offsets, data)
