"""Columns on their way to and from PostgreSQL, made and read as a whole: nobody makes an object for each message.

To the server a column is an array in its binary form, joined in one go:

    ┌───────────┬───────┬─────────┬──────┬───────┐┌──────┬───────┐┌──────┬─ ─
    │ dimension │ flags │ kind of │ rows │ 1     ││ size │ value ││ size │
    │ i32       │ i32   │ element │ i32  │ i32   ││ i32  │       ││ i32  │        size -1: NULL
    └───────────┴───────┴─────────┴──────┴───────┘└──────┴───────┘└──────┴─ ─

From the server numbers come as one `bytea` of big-endian numbers back to back, and
texts as one of their sizes and one of all of them: what `int8send` and `string_agg`
make of them there costs less than a row of the protocol for each.
"""

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any

from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format
from psycopg.types.numeric import Int2, Int4, Int8

from penstock.frame import Blobs

_HEAD = struct.Struct(">iiIii")
_SIZE = struct.Struct(">i")
_NULL = _SIZE.pack(-1)
_IS_LITTLE = sys.byteorder == "little"

# The kinds of PostgreSQL: those of an array and of its elements. They are the same in every server.
_BYTEA, _INT8, _INT2, _INT4, _TEXT, _FLOAT8 = 17, 20, 21, 23, 25, 701


class Column:
    """An array, ready to be sent."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Int2s(Column):
    __slots__ = ()


class Int4s(Column):
    __slots__ = ()


class Int8s(Column):
    __slots__ = ()


class Float8s(Column):
    __slots__ = ()


class Texts(Column):
    __slots__ = ()


class Bytes(Column):
    __slots__ = ()


class _ColumnDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Column) -> Buffer:
        return obj.data


def _dumper(oid_of_array: int) -> type[_ColumnDumper]:
    return type(f"_Dumper{oid_of_array}", (_ColumnDumper,), {"oid": oid_of_array})


DUMPERS: tuple[tuple[type[Column], type[Dumper]], ...] = (
    (Bytes, _dumper(1001)),
    (Int2s, _dumper(1005)),
    (Int4s, _dumper(1007)),
    (Texts, _dumper(1009)),
    (Int8s, _dumper(1016)),
    (Float8s, _dumper(1022)),
)


def _numbers(kind: int, code: str, values: Sequence[float]) -> bytes:
    size = struct.calcsize(">" + code)
    body = struct.pack(">" + ("i" + code) * len(values), *chain.from_iterable((size, value) for value in values))
    return _head(kind, len(values)) + body


def _head(kind: int, count: int) -> bytes:
    # An array without elements has no dimensions.
    return _HEAD.pack(1, 0, kind, count, 1) if count else _HEAD.pack(0, 0, kind, 0, 0)[:12]


def byte_strings(values: Sequence[bytes | bytearray | memoryview | None]) -> Bytes:
    """Join byte strings; None is NULL.

    >>> byte_strings([b"ab", None]).data.hex(" ", 4)
    '00000001 00000000 00000011 00000002 00000001 00000002 6162ffff ffff'
    """
    pack = _SIZE.pack
    parts = chain.from_iterable((_NULL,) if value is None else (pack(len(value)), value) for value in values)
    return Bytes(b"".join((_head(_BYTEA, len(values)), *parts)))


def texts(values: Sequence[str]) -> Texts:
    encoded = [value.encode() for value in values]
    return Texts(b"".join((_head(_TEXT, len(encoded)), *chain.from_iterable((_SIZE.pack(len(e)), e) for e in encoded))))


def _or_null(make: Callable[[Any], object]) -> Callable[[Any], object]:
    """Send None as NULL, and as it is what was made before: a column that does not change is made once."""
    return lambda value: value if value is None or isinstance(value, Column) else make(value)


# How a value is sent, by the type that a function of ours declares.
SENT_AS: dict[str, Callable[[Any], object]] = {
    "smallint": _or_null(Int2),
    "integer": _or_null(Int4),
    "bigint": _or_null(Int8),
    "boolean": lambda value: value,
    "text": lambda value: value,
    "bytea": lambda value: value,
    "smallint[]": _or_null(lambda values: Int2s(_numbers(_INT2, "h", values))),
    "integer[]": _or_null(lambda values: Int4s(_numbers(_INT4, "i", values))),
    "bigint[]": _or_null(lambda values: Int8s(_numbers(_INT8, "q", values))),
    "float8[]": _or_null(lambda values: Float8s(_numbers(_FLOAT8, "d", values))),
    "text[]": _or_null(texts),
    "bytea[]": _or_null(byte_strings),
}


def numbers(code: str, data: bytes) -> "array[int]":
    """Read big-endian numbers that stand back to back."""
    found = array(code)
    found.frombytes(data)
    if _IS_LITTLE:
        found.byteswap()
    return found


def blobs(sizes: bytes, data: bytes | None) -> Blobs:
    """Read texts that stand back to back."""
    offsets = array("i", accumulate(numbers("i", sizes), initial=0))
    return Blobs(offsets, memoryview(data or b""))
