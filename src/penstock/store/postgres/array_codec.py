"""Columns on their way to and from PostgreSQL, made and read as a whole, without an object for each message.

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
from functools import lru_cache, partial
from itertools import accumulate, chain
from typing import Any, cast

from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format
from psycopg.types.numeric import Int2, Int4, Int8

from penstock.frame import Blobs

_HEAD = struct.Struct(">iiIii")
_SIZE = struct.Struct(">i")
_NULL = _SIZE.pack(-1)
_IS_LITTLE = sys.byteorder == "little"
_FEW = 5

# The kinds of PostgreSQL: those of an array and of its elements. They are the same in every server.
_BOOL, _BYTEA, _INT8, _INT2, _INT4, _TEXT, _FLOAT8 = 16, 17, 20, 21, 23, 25, 701


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
    """Join numbers.

    >>> _numbers(_INT2, "h", [1, 2]).hex(" ", -4)
    '00000001 00000000 00000015 00000002 00000001 00000002 00010000 00020002'
    """
    # One for each tier: most arguments of a lease are those of the last one.
    return _few(kind, code, tuple(values)) if len(values) <= _FEW else _joined(kind, code, values)


def _joined(kind: int, code: str, values: Sequence[float]) -> bytes:
    if not values:
        return _head(kind, 0)
    size = struct.calcsize(">" + code)
    fields: list[float] = [size] * (2 * len(values))
    fields[1::2] = values
    return _shape(code, len(values)).pack(1, 0, kind, len(values), 1, *fields)


_few = lru_cache(maxsize=1_024)(_joined)


@lru_cache(maxsize=256)
def _shape(code: str, count: int) -> struct.Struct:
    return struct.Struct(_HEAD.format + ("i" + code) * count)


def _head(kind: int, count: int) -> bytes:
    # An array without elements has no dimensions.
    return _HEAD.pack(1, 0, kind, count, 1) if count else _HEAD.pack(0, 0, kind, 0, 0)[:12]


def byte_strings(values: Sequence[bytes | bytearray | memoryview | None]) -> bytes:
    """Join byte strings; None is NULL.

    >>> byte_strings([b"ab", None]).hex(" ", -4)
    '00000001 00000000 00000011 00000002 00000001 00000002 6162ffff ffff'
    """
    given = list(values)
    parts: list[bytes | bytearray | memoryview] = [_head(_BYTEA, len(given))] * (2 * len(given) + 1)
    if None in given:
        parts[1::2] = [_NULL if value is None else _SIZE.pack(len(value)) for value in given]
        parts[2::2] = [b"" if value is None else value for value in given]
    else:
        # On the way of every send: nothing here is made of bytecode that runs for each message.
        parts[2::2] = cast("list[bytes]", given)
        parts[1::2] = map(_SIZE.pack, map(len, parts[2::2]))
    return b"".join(parts)


def _texts(values: Sequence[str]) -> bytes:
    encoded = [value.encode() for value in values]
    return b"".join((_head(_TEXT, len(encoded)), *chain.from_iterable((_SIZE.pack(len(e)), e) for e in encoded)))


# What each kind of array is sent as, and how it is joined.
_ARRAYS: dict[str, tuple[type[Column], Callable[[Any], bytes]]] = {
    "smallint[]": (Int2s, partial(_numbers, _INT2, "h")),
    "integer[]": (Int4s, partial(_numbers, _INT4, "i")),
    "bigint[]": (Int8s, partial(_numbers, _INT8, "q")),
    "float8[]": (Float8s, partial(_numbers, _FLOAT8, "d")),
    "text[]": (Texts, _texts),
    "bytea[]": (Bytes, byte_strings),
}


def _or_null(make: Callable[[Any], object]) -> Callable[[Any], object]:
    """Send None as NULL, and as it is what was made before: a column that does not change is made once."""
    return lambda value: value if value is None or isinstance(value, Column) else make(value)


def _sent(kind: type[Column], join: Callable[[Any], bytes]) -> Callable[[Any], object]:
    return _or_null(lambda values: kind(join(values)))


# How a value is sent, by the type that a function of ours declares.
SENT_AS: dict[str, Callable[[Any], object]] = {
    "smallint": _or_null(Int2),
    "integer": _or_null(Int4),
    "bigint": _or_null(Int8),
    "boolean": lambda value: value,
    "text": lambda value: value,
    "bytea": lambda value: value,
    **{name: _sent(kind, join) for name, (kind, join) in _ARRAYS.items()},
}


def _packed(join: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return lambda values: values.data if isinstance(values, Column) else join(values)


# The same, as the bytes that go to the server; None is not asked for.
PACKED_AS: dict[str, Callable[[Any], bytes]] = {
    "smallint": struct.Struct(">h").pack,
    "integer": struct.Struct(">i").pack,
    "bigint": struct.Struct(">q").pack,
    "boolean": lambda value: b"\x01" if value else b"\x00",
    "text": str.encode,
    "bytea": bytes,
    **{name: _packed(join) for name, (_, join) in _ARRAYS.items()},
}
OIDS = {
    "smallint": _INT2, "integer": _INT4, "bigint": _INT8, "boolean": _BOOL, "text": _TEXT, "bytea": _BYTEA,
    "smallint[]": 1005, "integer[]": 1007, "bigint[]": 1016, "float8[]": 1022, "text[]": 1009, "bytea[]": 1001,
}  # fmt: skip


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
