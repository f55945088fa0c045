"""A frame of the history: settled messages as columns, one row for each.

One frame is one record of the history log. Everything is little-endian. The key
says what the frame is and what it covers:

     0      1         2       4      8         16       24        32        40       44       48       52
    ┌──────┬─────────┬───────┬──────┬─────────┬────────┬─────────┬─────────┬────────┬────────┬────────┐
    │ kind │ version │ flags │ rows │ covered │ within │ settled │ settled │ queues │ groups │ errors │
    │ u8 1 │ u8 1    │ u16   │ u32  │ u64     │ u64    │ from ms │ to ms   │ bytes  │ bytes  │ bytes  │
    └──────┴─────────┴───────┴──────┴─────────┴────────┴─i64─────┴─i64─────┴─u32────┴─u32────┴─u32────┘

The value is up to four frames of `frame.py`, back to back: the rows, then
tables whose sizes the key has, of 0 bytes where there is none.

    rows      queue I · home I · sent_tier B · number Q · tier B · sent q · first lease q · last lease q ·
              settled q · deliveries I · ending B · (group i) · (error i) · (body_state B · body * · (attributes *)) ·
              (key Q)                the place in the queue that was left: number << 3 | lane there
    queues    number I · name *      every queue that `queue` names, so that one that is gone has a name
    groups    name *                 row i is what the code i in `group` stands for; row 0 is "no group"
    errors    text *                 the same for `error`, in UTF-8

Laws of the file
----------------
1. Encoding loops over settlements and marks, never over the messages of a run.
2. A column in brackets is there only if a flag says so. Groups and errors repeat,
   so they are written once for each frame and coded, as Arrow's dictionaries are.
   Keys are there if any message had been moved: all others have them in `number` and `sent_tier`.
3. Decoding is a pure function of bytes and copies nothing. What `encode` would not
   write raises `BadFrame`; a kind, version or flag of the future `UnknownFrame`.

Not done here: which rows go into which frame, and when (`history_writer.py`).
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from operator import add, itemgetter, mul, sub
from typing import NamedTuple

from penstock.contract.history_columns import NUMBERS
from penstock.core.queue.settlements import Settlement
from penstock.frame import BadFrame, Blobs, Column, Numbers, pack, unpack
from penstock.runtime.interface import Buffer
from penstock.store.pages import Coded

KIND = 1
VERSION = 1

_KEY = struct.Struct("<BBHIQQqqIII")
_HAS_GROUPS, _HAS_ERRORS, _HAS_BODIES, _HAS_ATTRIBUTES, _HAS_KEYS = (1 << i for i in range(5))
_FLAGS = _HAS_GROUPS | _HAS_ERRORS | _HAS_BODIES | _HAS_ATTRIBUTES | _HAS_KEYS


class UnknownFrame(Exception):
    """The history holds a frame of a kind or version that this code does not know."""


class Head(NamedTuple):
    """What the key of a frame says.

    Every settling event below the journal offset `covered` is wholly in this frame
    or an earlier one, and so are `within` rows of the event at `covered`.
    """

    covered: int
    within: int
    rows: int
    settled_from_ms: int
    settled_to_ms: int


class Bodies(NamedTuple):
    """What a frame keeps of bodies: three columns, a row for each message of the frame."""

    states: "array[int]"
    bodies: list[Buffer]
    # Empty strings where a message has none.
    attributes: list[Buffer]


@dataclass(frozen=True, slots=True)
class HistoryFrame:
    """The columns of a frame, as views into its bytes. None where no row has one."""

    head: Head
    queue: memoryview
    home: memoryview
    sent_tier: memoryview
    number: memoryview
    tier: memoryview
    sent_at_ms: memoryview
    first_leased_ms: memoryview
    last_leased_ms: memoryview
    settled_at_ms: memoryview
    deliveries: memoryview
    ending: memoryview
    queue_numbers: memoryview
    queue_names: Blobs
    group: Coded | None = None
    error: Coded | None = None
    body_state: memoryview | None = None
    body: Blobs | None = None
    attributes: Blobs | None = None
    # Where each row was in the queue it left; None if all were first sent to it: then it is number << 3 | sent_tier.
    key: memoryview | None = None

    def names(self) -> dict[int, str]:
        """Return the name of each queue that the frame has rows of."""
        return {number: bytes(name).decode() for number, name in zip(self.queue_numbers, self.queue_names, strict=True)}


def part(settlement: Settlement, start: int, count: int) -> Settlement:
    """Return ``count`` messages of a settlement, from its ``start``-th on."""
    assert 0 <= start < start + count <= settlement.count
    if count == settlement.count:
        return settlement
    return settlement._replace(key=settlement.key + (start << 3), count=count, number=settlement.number + start)


def encode(
    settlements: Sequence[Settlement],
    names: Mapping[int, str],
    *,
    covered: int,
    within: int,
    bodies: Bodies | None = None,
) -> tuple[bytes, bytes]:
    """Return key and value of a frame. ``names`` has all queues of the settlements, and may have more."""
    # Not `zip(*settlements)`: with tens of thousands of them it is one call that nothing can interrupt.
    fields = [list(map(field, settlements)) for field in _FIELDS]
    queues, keys, counts, homes, lanes, numbers, tiers, groups, sent, first, last, settled, *rest = fields
    deliveries, endings, errors = rest
    rows = sum(counts)
    columns: list[Column] = [
        _repeated("I", queues, counts, rows),
        _repeated("I", homes, counts, rows),
        _repeated("B", lanes, counts, rows),
        _consecutive(numbers, counts, rows),
        _repeated("B", tiers, counts, rows),
        _sent_at(sent, keys, counts, rows),
        _repeated("q", first, counts, rows),
        _repeated("q", last, counts, rows),
        _repeated("q", settled, counts, rows),
        _repeated("I", deliveries, counts, rows),
        _repeated("B", endings, counts, rows),
    ]
    present = sorted(set(queues))
    tables = [pack([array("I", present), Blobs.of([names[queue].encode() for queue in present])])]
    flags = 0
    for flag, words in ((_HAS_GROUPS, groups), (_HAS_ERRORS, [error.encode() for error in errors])):
        if any(words):
            flags |= flag
            codes, table = _coded(words)
            columns.append(_repeated("i", codes, counts, rows))
            tables.append(table)
        else:
            tables.append(b"")
    if bodies is not None:
        flags |= _add_bodies(columns, bodies)
    if queues != homes or keys != [number << 3 | lane for number, lane in zip(numbers, lanes, strict=True)]:
        flags |= _HAS_KEYS
        columns.append(_consecutive(keys, counts, rows, step=8))
    span = (min(settled), max(settled)) if settled else (0, 0)
    key = _KEY.pack(KIND, VERSION, flags, rows, covered, within, *span, *map(len, tables))
    return key, b"".join((pack(columns), *tables))


_FIELDS = tuple(map(itemgetter, range(len(Settlement._fields))))


def _repeated(code: str, values: Sequence[int], counts: Sequence[int], rows: int) -> Numbers:
    """Return each value as often as its count says."""
    if not rows:
        return array(code)
    if values.count(values[0]) == len(values):
        return array(code, values[:1]) * rows
    column = array(code, values)
    if rows == len(values):
        return column
    # Bytes are multiplied and joined in C, where an array would have to be made for each value.
    raw, size = column.tobytes(), column.itemsize
    items = [raw[at : at + size] for at in range(0, len(raw), size)]
    return memoryview(b"".join(map(mul, items, counts))).cast(code)  # type: ignore[call-overload, no-any-return]


def _consecutive(firsts: Sequence[int], counts: Sequence[int], rows: int, step: int = 1) -> "array[int]":
    if rows == len(firsts):
        return array("Q", firsts)
    ends = map(add, firsts, map(mul, counts, repeat(step)))
    return array("Q", chain.from_iterable(map(range, firsts, ends, repeat(step))))


def _sent_at(
    sent: "Sequence[int | tuple[array[int], array[int]]]", keys: Sequence[int], counts: Sequence[int], rows: int
) -> Numbers:
    times: list[int] = []
    spans: list[int] = []
    for at_ms, key, count in zip(sent, keys, counts, strict=True):
        if isinstance(at_ms, int):
            times.append(at_ms)
            spans.append(count)
        else:
            _add_marked(times, spans, at_ms, range(key >> 3, (key >> 3) + count))
    return _repeated("q", times, spans, rows)


def _add_marked(times: list[int], spans: list[int], marks: "tuple[array[int], array[int]]", numbers: range) -> None:
    firsts, at_ms = marks
    start = bisect_right(firsts, numbers.start) - 1
    assert start >= 0, "a number has a mark at or below it"
    end = bisect_left(firsts, numbers.stop)
    if end == start + 1:
        times.append(at_ms[start])
        spans.append(len(numbers))
        return
    times += at_ms[start:end]
    bounds = [numbers.start, *firsts[start + 1 : end], numbers.stop]
    spans += map(sub, bounds[1:], bounds)


def _coded(words: Iterable[bytes]) -> tuple[list[int], bytes]:
    """Return a code for each word, and the table of what the codes stand for."""
    known = {b"": 0}
    codes = [known.setdefault(word, len(known)) for word in words]
    return codes, pack([Blobs.of(list(known))])


def _add_bodies(columns: list[Column], bodies: Bodies) -> int:
    columns += (bodies.states, Blobs.of(bodies.bodies))
    if not any(bodies.attributes):
        return _HAS_BODIES
    columns.append(Blobs.of(bodies.attributes))
    return _HAS_BODIES | _HAS_ATTRIBUTES


def read_head(key: Buffer | None) -> Head:
    """Return what a key says, without a look at the frame."""
    return _read_key(key)[0]


def decode(key: Buffer | None, value: Buffer | None) -> HistoryFrame:
    """Return the columns of a record of the history."""
    head, flags, sizes = _read_key(key)
    view = memoryview(b"" if value is None else value)
    if sum(sizes) > len(view):
        raise BadFrame(f"{len(view)} bytes cannot hold tables of {sum(sizes)}")
    ends = [len(view) - sum(sizes[at:]) for at in range(4)]
    rows, queues, groups, errors = (view[start:end] for start, end in zip([0, *ends], ends, strict=False))
    columns = iter(_read_columns(rows, _kinds(flags), head.rows))
    fixed = {name: next(columns) for name in NUMBERS}
    numbers, names = _read_columns(queues, "I*")
    return HistoryFrame(
        head,
        **fixed,  # type: ignore[arg-type]
        queue_numbers=numbers,  # type: ignore[arg-type]
        queue_names=names,  # type: ignore[arg-type]
        group=_read_coded(next(columns), groups) if flags & _HAS_GROUPS else None,
        error=_read_coded(next(columns), errors) if flags & _HAS_ERRORS else None,
        body_state=next(columns) if flags & _HAS_BODIES else None,  # type: ignore[arg-type]
        body=next(columns) if flags & _HAS_BODIES else None,  # type: ignore[arg-type]
        attributes=next(columns) if flags & _HAS_ATTRIBUTES else None,  # type: ignore[arg-type]
        key=next(columns) if flags & _HAS_KEYS else None,  # type: ignore[arg-type]
    )


def _read_key(key: Buffer | None) -> tuple[Head, int, list[int]]:
    if key is None or len(key) < 2:
        raise UnknownFrame("a record without a kind")
    if (key[0], key[1]) != (KIND, VERSION):
        raise UnknownFrame(f"frame kind {key[0]} of version {key[1]} is not known to this version of Penstock")
    if len(key) != _KEY.size:
        raise BadFrame(f"a key of {len(key)} bytes; it has {_KEY.size}")
    _, _, flags, rows, covered, within, from_ms, to_ms, *sizes = _KEY.unpack(key)
    if flags & ~_FLAGS:
        raise UnknownFrame(f"the flags {flags:#x} are not known to this version of Penstock")
    return Head(covered, within, rows, from_ms, to_ms), flags, sizes


def _kinds(flags: int) -> str:
    """Return the kinds of the columns of the rows."""
    optional = (
        (_HAS_GROUPS, "i"),
        (_HAS_ERRORS, "i"),
        (_HAS_BODIES, "B*"),
        (_HAS_ATTRIBUTES, "*"),
        (_HAS_KEYS, "Q"),
    )
    return "".join(NUMBERS.values()) + "".join(kinds for flag, kinds in optional if flags & flag)


def _read_columns(frame: memoryview, kinds: str, rows: int | None = None) -> list[memoryview | Blobs]:
    columns = unpack(frame)
    found = "".join("*" if isinstance(column, Blobs) else column.format for column in columns)
    if found != kinds:
        raise BadFrame(f"columns of the kinds {found!r} where {kinds!r} belong")
    if rows is not None and len(columns[0]) != rows:
        raise BadFrame(f"{len(columns[0])} rows where the key says {rows}")
    return columns


def _read_coded(codes: memoryview | Blobs, table: memoryview) -> Coded:
    (words,) = _read_columns(table, "*")
    assert isinstance(codes, memoryview)
    assert isinstance(words, Blobs)
    # Arrow follows a code without a look at where it leads.
    if len(codes) and not 0 <= min(codes) <= max(codes) < len(words):
        raise BadFrame(f"a code outside a table of {len(words)} words")
    return Coded(codes, words)
