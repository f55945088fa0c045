"""The fields of Kafka's messages, read from bytes that may be hostile, and written.

Non-flexible versions say lengths in two or four bytes, flexible ones as variable
integers, one more than the length so that 0 is null, with tagged fields at the end
of each structure (KIP-482).

Laws of this file
-----------------
1. Nothing is believed: a length is compared with what is left before anything is
   made, and all arrays of a message together have `REQUEST_ELEMENTS_MAX` elements at most.
2. `Malformed` is the only thing that a reader raises.
3. What a reader returns for bytes is a view of the frame, not a copy.
   What reads many elements is a generator that yields after `TURN_ELEMENTS` of them, so
   that others have their turn.
4. What is left over at the end is no error: brokers have never looked at it,
   and librdkafka leaves three bytes after the question for all topics (version 13).

kio has readers of its own. They reserve memory for as many elements as an array says
it has: six bytes of a stranger end the process. Hence these.
"""

from collections.abc import Generator
from struct import Struct, error
from struct import pack as pack_fields
from typing import TypeVar

from penstock.contract.limits import REQUEST_ELEMENTS_MAX

T = TypeVar("T")

_VARINT_BYTES_MAX = 5
# What is read in one turn of the loop: a few milliseconds.
TURN_ELEMENTS = 500

_INT8, _INT16, _INT32, _INT64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")
_UINT16, _UINT32, _FLOAT64 = Struct(">H"), Struct(">I"), Struct(">d")


class Malformed(Exception):
    """These bytes are not the message that their header says they are."""


class Reader:
    """Reads one message from its beginning to its end."""

    __slots__ = ("view", "place", "is_flexible", "_elements_left", "_turn_left")

    def __init__(self, view: memoryview, place: int = 0, *, is_flexible: bool) -> None:
        self.view = view
        self.place = place
        self.is_flexible = is_flexible
        self._elements_left = REQUEST_ELEMENTS_MAX
        self._turn_left = TURN_ELEMENTS

    def is_turn_over(self) -> bool:
        """Count one more element; return whether others should have their turn before the next."""
        self._turn_left -= 1
        if self._turn_left:
            return False
        self._turn_left = TURN_ELEMENTS
        return True

    def _number(self, form: Struct) -> int:
        try:
            value: int = form.unpack_from(self.view, self.place)[0]
        except error as problem:
            raise Malformed("the message ends in the middle of a number") from problem
        self.place += form.size
        return value

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def uint16(self) -> int:
        return self._number(_UINT16)

    def uint32(self) -> int:
        return self._number(_UINT32)

    def float64(self) -> float:
        return self._number(_FLOAT64)

    def boolean(self) -> bool:
        return self._number(_INT8) != 0

    def uuid(self) -> bytes:
        return bytes(self.take(16))

    def varint(self) -> int:
        """Return an unsigned number of 7 bits a byte, the lowest first."""
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            if self.place >= len(self.view):
                raise Malformed("the message ends in the middle of a number")
            byte = self.view[self.place]
            self.place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Malformed("a number of variable length does not end")

    def take(self, size: int) -> memoryview:
        end = self.place + size
        if size < 0 or end > len(self.view):
            raise Malformed(f"{size} bytes are announced, and {len(self.view) - self.place} are left")
        taken = self.view[self.place : end]
        self.place = end
        return taken

    def nullable_bytes(self) -> memoryview | None:
        size = self.varint() - 1 if self.is_flexible else self.int32()
        return None if size == -1 else self.take(size)

    def nullable_string(self) -> str | None:
        size = self.varint() - 1 if self.is_flexible else self.int16()
        return None if size == -1 else self._text(size)

    def string(self) -> str:
        found = self.nullable_string()
        if found is None:
            raise Malformed("a text is null that may not be")
        return found

    def legacy_nullable_string(self) -> str | None:
        """Return the client id of a header, which is as in old versions in all of them."""
        size = self.int16()
        return None if size == -1 else self._text(size)

    def _text(self, size: int) -> str:
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError as problem:
            raise Malformed("a text is not UTF-8") from problem

    def nullable_array(self) -> int | None:
        """Return how many elements follow; None for no array."""
        count = self.varint() - 1 if self.is_flexible else self.int32()
        if count == -1:
            return None
        # Each element takes a byte at the least.
        if not 0 <= count <= min(self._elements_left, len(self.view) - self.place):
            raise Malformed(f"{count} elements are announced, more than the message holds or may hold")
        self._elements_left -= count
        return count

    def array(self) -> int:
        count = self.nullable_array()
        if count is None:
            raise Malformed("an array is null that may not be")
        return count

    def tags(self) -> list[tuple[int, "Reader"]]:
        """Return the tagged fields that end a structure, each with a reader of its own; none in old versions."""
        if not self.is_flexible:
            return []
        found = []
        for _ in range(self.array_of_tags()):
            tag, size = self.varint(), self.varint()
            inner = Reader(self.take(size), is_flexible=True)
            inner._elements_left = self._elements_left
            found.append((tag, inner))
        return found

    def array_of_tags(self) -> int:
        count = self.varint()
        if count > min(self._elements_left, len(self.view) - self.place):
            raise Malformed(f"{count} tagged fields are announced, more than the message holds or may hold")
        self._elements_left -= count
        return count

    def skip_tags(self) -> None:
        if self.is_flexible:
            for _ in range(self.array_of_tags()):
                self.varint()
                self.take(self.varint())


def at_once(reading: Generator[None, None, T]) -> T:
    """Return what is read, without a turn for others."""
    while True:
        try:
            next(reading)
        except StopIteration as end:
            found: T = end.value
            return found


def varint(value: int) -> bytes:
    assert value >= 0
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: str | None, *, is_flexible: bool) -> bytes:
    if value is None:
        return b"\0" if is_flexible else b"\xff\xff"
    data = value.encode()
    return varint(len(data) + 1) + data if is_flexible else _INT16.pack(len(data)) + data


def binary(value: bytes | memoryview | None, *, is_flexible: bool) -> bytes:
    if value is None:
        return b"\0" if is_flexible else b"\xff\xff\xff\xff"
    return binary_size(len(value), is_flexible=is_flexible) + bytes(value)


def binary_size(size: int, *, is_flexible: bool) -> bytes:
    """Return what stands before so many bytes."""
    return varint(size + 1) if is_flexible else _INT32.pack(size)


def array_size(count: int | None, *, is_flexible: bool) -> bytes:
    if count is None:
        return b"\0" if is_flexible else b"\xff\xff\xff\xff"
    return varint(count + 1) if is_flexible else _INT32.pack(count)


__all__ = ["Malformed", "Reader", "array_size", "at_once", "binary", "binary_size", "pack_fields", "string", "varint"]
