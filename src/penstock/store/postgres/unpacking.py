"""Rows of the table `history` as columns of messages: a row is one message, or a pack of those acked together.

    row    at_offset │ queue │ key  │ sent_at_ms  │ …       one message
    pack   at_offset │ queue │ keys │ sent_ats_ms │ …       message i is at at_offset + i
                             └ 8 bytes for each ──┘   bodies stand back to back, and 4 bytes say how long each is

Laws of this file
-----------------
1. What a page has does not depend on how its messages are packed: it ends at as many messages,
   and behind the same message if that one fills it, also within a pack.
2. Of a pack no message is an object: columns are cut, swapped and joined whole.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby, repeat
from operator import add, sub
from typing import Any

from penstock.contract.history_columns import NUMBERS, BodyState
from penstock.frame import Blobs
from penstock.store.pages import Coded
from penstock.store.postgres.columns import numbers

# The columns of numbers that a page has, and their widths.
_CODES = {**NUMBERS, "offsets": "q", "key": "Q"}
# The last byte of a key as the tier that its message was sent at.
_LANES = bytes(byte & 7 for byte in range(256))
# The places of some columns in what `history_page.sql` asks for.
_BODY, _ATTRIBUTES, _PACK = 14, 15, 16


class Texts:
    """Bodies, or attributes, of some messages: back to back, in as many pieces as there are rows or packs."""

    __slots__ = ("sizes", "pieces", "is_there")

    def __init__(self) -> None:
        self.sizes = array("i")
        self.pieces: list[bytes | memoryview] = []
        self.is_there = False

    def add(self, sizes: "Iterable[int]", pieces: Iterable[bytes | memoryview], *, is_there: bool) -> None:
        self.sizes.extend(sizes)
        self.pieces.extend(pieces)
        self.is_there = self.is_there or is_there

    def blobs(self) -> Blobs:
        offsets = array("i", accumulate(self.sizes, initial=0))
        return Blobs(offsets, memoryview(b"".join(self.pieces)))


class Unpacked:
    """The messages of one page: from an offset on and before another, so many and no more behind so many bytes."""

    def __init__(self, *, first: int, end: int, most: int, size_max: int) -> None:
        self._first, self._end = first, end
        self._most, self._size_max = most, size_max
        self.size = 0
        # Where the last row ends that something was taken of.
        self.row_end = first
        self._numbers = {name: array(code) for name, code in _CODES.items()}
        self._groups: list[bytes] = []
        self._errors: list[bytes] = []
        self._has_moved = False
        self._states = bytearray()
        self._bodies, self._attributes = Texts(), Texts()

    def __len__(self) -> int:
        return len(self._states)

    @property
    def is_full(self) -> bool:
        return len(self) >= self._most or self.size >= self._size_max

    @property
    def last(self) -> int:
        """The offset of the last message."""
        return self._numbers["offsets"][-1]

    def add(self, rows: Sequence[Any]) -> None:
        """Take as many messages of these rows as there is room for."""
        for is_single, found in groupby(rows, key=_is_single):
            if is_single:
                self._add_singles(list(found))
            else:
                for row in found:
                    self._add_pack(row)

    def columns(self) -> dict[str, Any]:
        """Return the columns of a page, by name."""
        columns: dict[str, Any] = {name: memoryview(column) for name, column in self._numbers.items()}
        if not self._has_moved:
            del columns["key"]
        columns["group"], columns["error"] = coded(self._groups), coded(self._errors)
        if self._bodies.is_there:
            columns["body_state"] = memoryview(array("B", self._states))
            columns["body"] = self._bodies.blobs()
        if self._attributes.is_there:
            columns["attributes"] = self._attributes.blobs()
        return columns

    def _extend(self, **columns: "Iterable[int]") -> None:
        for name, column in columns.items():
            self._numbers[name].extend(column)

    def _room(self, ends: Sequence[int], most: int) -> int:
        """Return how many messages there is room for, of which each ends behind so many bytes."""
        return min(most, self._most - len(self), bisect_left(ends, self._size_max - self.size) + 1)

    def _add_singles(self, rows: list[Any]) -> None:
        if self.is_full:
            return
        ends = list(accumulate(len(row[_BODY] or b"") + len(row[_ATTRIBUTES] or b"") for row in rows))
        count = self._room(ends, len(rows))
        (
            offsets, queues, keys, homes, home_keys, sent, first, last, settled, deliveries, tiers, endings, groups,
            errors, bodies, attributes, _,
        ) = zip(*rows[:count], strict=True)  # fmt: skip
        self._has_moved = self._has_moved or any(home is not None for home in homes)
        own = [key if home_key is None else home_key for key, home_key in zip(keys, home_keys, strict=True)]
        self._extend(
            offsets=offsets, queue=queues, key=keys, sent_at_ms=sent, first_leased_ms=first, last_leased_ms=last,
            home=[queue if home is None else home for queue, home in zip(queues, homes, strict=True)],
            sent_tier=[key & 7 for key in own], number=[key >> 3 for key in own],
            settled_at_ms=settled, deliveries=deliveries, tier=tiers, ending=endings,
        )  # fmt: skip
        self._groups += [group or b"" for group in groups]
        self._errors += [(error or "").encode() for error in errors]
        self._states += bytes(BodyState.NOT_KEPT if body is None else BodyState.KEPT for body in bodies)
        for column, texts in ((self._bodies, bodies), (self._attributes, attributes)):
            pieces = [text or b"" for text in texts]
            column.add(map(len, pieces), pieces, is_there=any(text is not None for text in texts))
        self.size += ends[count - 1]
        self.row_end = offsets[-1] + 1

    def _add_pack(self, row: Sequence[Any]) -> None:
        if self.is_full:
            return
        offset, *_, body, attributes, pack = row
        packed = Pack(pack, has_bodies=body is not None, has_attributes=attributes is not None)
        start = max(0, self._first - offset)
        count = min(packed.count, self._end - offset) - start
        body_ends = _ends(packed.body_sizes, start, count)
        attribute_ends = _ends(packed.attribute_sizes, start, count)
        ends = _sums(body_ends, attribute_ends) if body is not None else bytes(count)
        count = self._room(ends, count)
        self.size += ends[count - 1]
        self._add_numbers(row, packed, start, start + count)
        self._groups += [b""] * count
        self._errors += [b""] * count
        self._states += bytes([BodyState.NOT_KEPT if body is None else BodyState.KEPT]) * count
        _cut(self._bodies, body, body_ends[: count + 1], is_there=body is not None)
        has_some = attribute_ends[count] > attribute_ends[0]
        _cut(self._attributes, attributes, attribute_ends[: count + 1], is_there=has_some)
        self.row_end = offset + packed.count

    def _add_numbers(self, row: Sequence[Any], packed: "Pack", start: int, stop: int) -> None:
        offset, queue, _, _, _, _, first_leased_ms, last_leased_ms, settled_at_ms, deliveries, _, ending, *_ = row
        key_bytes = packed.keys[8 * start : 8 * stop]
        keys, lanes, count = numbers("Q", key_bytes), key_bytes[7::8].translate(_LANES), stop - start
        self._extend(
            offsets=range(offset + start, offset + stop), queue=repeat(queue, count), home=repeat(queue, count),
            key=keys, sent_tier=lanes, number=[key >> 3 for key in keys], tier=lanes,
            sent_at_ms=numbers("q", packed.sent_ats_ms[8 * start : 8 * stop]),
            first_leased_ms=repeat(first_leased_ms, count), last_leased_ms=repeat(last_leased_ms, count),
            settled_at_ms=repeat(settled_at_ms, count), deliveries=repeat(deliveries, count),
            ending=repeat(ending, count),
        )  # fmt: skip


class Pack:
    """What a row says of each of its messages: the column of that, cut into its parts."""

    __slots__ = ("count", "keys", "sent_ats_ms", "body_sizes", "attribute_sizes")

    def __init__(self, data: bytes, *, has_bodies: bool, has_attributes: bool) -> None:
        self.count = count = int.from_bytes(data[:4], "big")
        bodies_at = 4 + 16 * count
        attributes_at = bodies_at + 4 * count * has_bodies
        assert len(data) == attributes_at + 4 * count * has_attributes
        self.keys = data[4 : 4 + 8 * count]
        self.sent_ats_ms = data[4 + 8 * count : bodies_at]
        self.body_sizes = data[bodies_at:attributes_at]
        self.attribute_sizes = data[attributes_at:]


def _is_single(row: Any) -> bool:
    return row[_PACK] is None


def _ends(sizes: bytes, start: int, count: int) -> Sequence[int]:
    """Return where some texts of a pack begin, and behind it where each ends; zeros if it has none."""
    if not sizes:
        return bytes(count + 1)
    return list(accumulate(numbers("i", sizes[: 4 * (start + count)]), initial=0))[start:]


def _sums(bodies: Sequence[int], attributes: Sequence[int]) -> Sequence[int]:
    """Return behind how many bytes each message ends."""
    before = bodies[0] + attributes[0]
    return [end - before for end in map(add, bodies[1:], attributes[1:])]


def _cut(column: Texts, data: bytes | None, ends: Sequence[int], *, is_there: bool) -> None:
    sizes = array("i", map(sub, ends[1:], ends)) if is_there else repeat(0, len(ends) - 1)
    column.add(sizes, [memoryview(data or b"")[ends[0] : ends[-1]]], is_there=is_there)


def coded(words: Sequence[bytes]) -> Coded | None:
    """Return a column of words that repeat; None if all are empty."""
    if not any(words):
        return None
    codes = {b"": 0}
    column = [codes.setdefault(word, len(codes)) for word in words]
    return Coded(memoryview(array("i", column)), Blobs.of(list(codes)))
