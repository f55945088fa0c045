"""Events as journal records, and back.

One event is one record. Its key says what it is and holds what there is one of;
its value is a frame (`frame.py`) of what there is one of for each row:

    key     kind u8 · version u8 · the event's numbers · its mask · its texts
    value   a frame of columns, or none

A mask or a text is its length (u32) and its bytes. All is little-endian.

An unknown kind, or a version this code does not know, raises `UnknownEvent`: a
journal must be understood wholly or not at all. A changed layout gets a new
version, and a reader of its own; the old one stays readable.

Attributes and bodies are the last columns of a `Sent` or an `Arrived` and the only
ones of a `Copied`: the core never sees them, and a reader of numbers alone skips them.
"""

import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from penstock.core.queue import events
from penstock.core.queue.events import Acked, Arrived, Buried, Copied, Event, Leased, Redriven, Released, Sent
from penstock.core.queue.message import Origin, Run, Sender
from penstock.frame import Blobs, Column, pack, pack_bytes_and_blobs, unpack
from penstock.runtime.interface import Buffer

VERSION = 1

_HEAD = struct.Struct("<BB")
_LENGTH = struct.Struct("<I")


class UnknownEvent(Exception):
    """A journal holds an event of a kind or version that this code does not know."""


# Key and value. A plain tuple, because one is made for every event.
Encoded: TypeAlias = tuple[bytes, bytes | None]


class Decoded(NamedTuple):
    event: Event
    # Only a `Sent`, an `Arrived` and a `Copied` have them.
    bodies: Blobs | None = None
    attributes: Blobs | None = None


@dataclass(frozen=True)
class Layout:
    """How one kind of event is written: which fields are numbers, which texts, and what its rows are."""

    # Written to disk: never changed, and never used again for another event.
    kind: int
    event: type[Any]
    numbers: struct.Struct
    fields: tuple[str, ...]
    has_mask: bool = False
    texts: tuple[str, ...] = ()
    has_runs: bool = False
    # One byte for each run.
    has_tiers: bool = False
    # Origin, group and error of each run.
    has_origins: bool = False


_QUEUE = struct.Struct("<Iq")
_LEASE = struct.Struct("<IqQ")
_MOVE = struct.Struct("<IqI")

_LAYOUTS = (
    Layout(1, events.Opened, struct.Struct("<q"), ("at_ms",)),
    Layout(2, events.QueueCreated, _QUEUE, ("queue", "at_ms"), texts=("name", "settings")),
    Layout(3, events.QueueChanged, _QUEUE, ("queue", "at_ms"), texts=("settings",)),
    Layout(4, events.QueueDeleted, _QUEUE, ("queue", "at_ms")),
    Layout(5, events.Sent, _QUEUE, ("queue", "at_ms")),
    Layout(
        6,
        events.Leased,
        struct.Struct("<IqQQQ"),
        ("queue", "at_ms", "lease", "token", "lease_ms"),
        has_runs=True,
        has_tiers=True,
    ),
    Layout(7, events.Acked, _LEASE, ("queue", "at_ms", "lease"), has_mask=True),
    Layout(8, events.Released, _LEASE, ("queue", "at_ms", "lease"), has_mask=True, texts=("error",)),
    Layout(9, events.Extended, struct.Struct("<IqQQ"), ("queue", "at_ms", "lease", "lease_ms"), has_mask=True),
    Layout(10, events.Buried, _MOVE, ("queue", "at_ms", "into"), has_runs=True, has_tiers=True, has_origins=True),
    Layout(11, events.Expired, _QUEUE, ("queue", "at_ms"), has_runs=True),
    Layout(12, events.Purged, _QUEUE, ("queue", "at_ms")),
    Layout(
        13,
        events.Escalated,
        struct.Struct("<IqBq"),
        ("queue", "at_ms", "tier", "until_ms"),
        texts=("actor", "reason"),
        has_runs=True,
    ),
    Layout(14, events.Redriven, _MOVE, ("queue", "at_ms", "into"), has_runs=True, has_tiers=True, has_origins=True),
    Layout(
        15,
        events.Moving,
        struct.Struct("<IqIQ?"),
        ("queue", "at_ms", "into", "sequence", "is_redrive"),
        has_runs=True,
    ),
    Layout(16, events.Arrived, struct.Struct("<IqIQ"), ("queue", "at_ms", "source", "sequence")),
    Layout(17, events.Moved, struct.Struct("<IqQ?"), ("queue", "at_ms", "sequence", "is_done")),
    Layout(18, events.Copied, _QUEUE, ("queue", "at_ms")),
    Layout(19, events.Returned, _LEASE, ("queue", "at_ms", "lease"), has_mask=True),
    Layout(20, events.CaughtUp, struct.Struct("<IqqI"), ("queue", "at_ms", "from_ms", "most")),
    Layout(21, events.Cancelled, _QUEUE, ("queue", "at_ms"), has_runs=True),
)
_BY_EVENT = {layout.event: layout for layout in _LAYOUTS}
_BY_KIND = {(layout.kind, VERSION): layout for layout in _LAYOUTS}


def encode(event: Event, bodies: Blobs | None = None, attributes: Blobs | None = None) -> Encoded:
    """Return key and value of the record that remembers ``event``."""
    short = _SHORT.get(type(event))
    found = None if short is None or attributes is not None else short(event, bodies)
    return found or encode_by_layout(event, bodies, attributes)


def encode_by_layout(event: Event, bodies: Blobs | None = None, attributes: Blobs | None = None) -> Encoded:
    """Do what `encode` does for any event, for three to five times the price of a short cut."""
    layout = _BY_EVENT[type(event)]
    key = [_HEAD.pack(layout.kind, VERSION), layout.numbers.pack(*(getattr(event, name) for name in layout.fields))]
    columns: list[Column] = []
    if layout.has_mask:
        mask: int = getattr(event, "mask")  # noqa: B009 - not every event has one; this layout's do.
        key.append(_with_length(mask.to_bytes((mask.bit_length() + 7) // 8, "little")))
    key += [_with_length(getattr(event, name).encode()) for name in layout.texts]
    if layout.has_runs:
        columns = _run_columns(event, layout)
    elif isinstance(event, Released):
        columns = [array("q", event.visible_at_ms)]
    elif isinstance(event, Sent | Arrived):
        write = _sent_columns if isinstance(event, Sent) else _arrived_columns
        flags, columns = write(event, bodies, attributes)  # type: ignore[arg-type]
        key.append(flags)
    elif isinstance(event, Copied):
        key.append(_with_length(array("Q", [number for run in event.runs for number in run]).tobytes()))
        assert bodies is not None
        columns = [bodies] if attributes is None else [attributes, bodies]
    return b"".join(key), pack(columns) if columns else None


def decode(key: Buffer | None, value: Buffer | None) -> Decoded:
    """Return the event of a record, and the bodies it brings as views into ``value``."""
    if key is None or len(key) < _HEAD.size:
        raise UnknownEvent("a record without a kind")
    short = _SHORT_READERS.get((key[0], key[1]))
    found = None if short is None else short(key, value)
    return found or decode_by_layout(key, value)


def decode_by_layout(key: Buffer, value: Buffer | None) -> Decoded:
    """Do what `decode` does for any event; it knows which there are, and what a whole one is."""
    kind, version = _HEAD.unpack_from(key)
    layout = _BY_KIND.get((kind, version))
    if layout is None:
        raise UnknownEvent(f"event kind {kind} of version {version} is not known to this version of Penstock")
    view = memoryview(key)
    fields: dict[str, Any] = dict(zip(layout.fields, layout.numbers.unpack_from(view, _HEAD.size), strict=True))
    at = _HEAD.size + layout.numbers.size
    columns = unpack(value) if value is not None else []
    read = _WITH_BODIES.get(layout.event)
    if read is not None:
        return read(fields, view[at:], columns)
    if layout.has_mask:
        mask, at = _read_length(view, at)
        fields["mask"] = int.from_bytes(mask, "little")
    for name in layout.texts:
        text, at = _read_length(view, at)
        fields[name] = bytes(text).decode()
    if layout.has_runs:
        fields |= _read_runs(columns, layout)
    elif layout.event is Released:
        fields["visible_at_ms"] = tuple(columns[0])
    return Decoded(layout.event(**fields))


def _with_length(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _read_length(view: memoryview, at: int) -> tuple[memoryview, int]:
    (length,) = _LENGTH.unpack_from(view, at)
    start = at + _LENGTH.size
    return view[start : start + length], start + length


def _run_columns(event: Any, layout: Layout) -> list[Column]:
    runs: Sequence[Run] = event.runs
    columns: list[Column] = [
        array("B", [run.lane for run in runs]),
        array("Q", [run.first for run in runs]),
        array("I", [run.length for run in runs]),
    ]
    if layout.has_tiers:
        assert isinstance(event, Leased | Buried | Redriven)
        columns.append(array("B", event.tiers))
    if layout.has_origins:
        assert isinstance(event, Buried | Redriven)
        columns += _origin_columns(event)
    return columns


def _origin_columns(event: Buried | Redriven | Arrived) -> list[Column]:
    by_field = list(zip(*event.origins, strict=True)) or [()] * len(_ORIGIN)
    columns: list[Column] = [array(code, values) for code, values in zip(_ORIGIN, by_field, strict=True)]
    return [*columns, Blobs.of(event.groups), Blobs.of([error.encode() for error in event.errors])]


# The columns of an `Origin`: queue, lane, number, sent_at_ms, deliveries.
_ORIGIN = "IBQqI"


def _read_runs(columns: Sequence[memoryview | Blobs], layout: Layout) -> dict[str, Any]:
    fields: dict[str, Any] = {"runs": tuple(map(Run, *columns[:3]))}
    if layout.has_tiers:
        fields["tiers"] = bytes(columns[3])  # type: ignore[arg-type]
    if layout.has_origins:
        fields |= _read_origins(columns[4:])
    return fields


def _read_origins(columns: Sequence[memoryview | Blobs]) -> dict[str, Any]:
    *origins, groups, errors = columns
    return {
        "origins": tuple(map(Origin, *origins)),
        "groups": tuple(map(bytes, groups)),
        "errors": tuple(bytes(error).decode() for error in errors),
    }


# A `Sent` has columns that most sends do without. The flags say which are there, in this order.
_SENT = struct.Struct("<BQIQ")
_HAS_SENDER, _HAS_VISIBLE_AT, _HAS_GROUPS, _HAS_DEDUP_IDS, _HAS_DELIVERIES_MAX, _HAS_ATTRIBUTES = (
    1 << i for i in range(6)
)
_NO_SENDER = Sender(0, 0, 0)


def _sent_columns(event: Sent, bodies: Blobs | None, attributes: Blobs | None) -> tuple[bytes, list[Column]]:
    assert bodies is not None
    columns: list[Column] = [array("B", event.tiers)]
    optional: list[tuple[int, Column | None]] = [
        (_HAS_VISIBLE_AT, None if event.visible_at_ms is None else array("q", event.visible_at_ms)),
        (_HAS_GROUPS, None if event.groups is None else Blobs.of(event.groups)),
        (_HAS_DEDUP_IDS, None if event.dedup_ids is None else Blobs.of(event.dedup_ids)),
        (_HAS_DELIVERIES_MAX, None if event.deliveries_max is None else array("H", event.deliveries_max)),
        (_HAS_ATTRIBUTES, attributes),
    ]
    flags = 0 if event.sender is None else _HAS_SENDER
    for flag, column in optional:
        if column is not None:
            flags |= flag
            columns.append(column)
    columns.append(bodies)
    repeats = array("Q", [number for repeat in event.repeats for number in repeat]).tobytes()
    return _SENT.pack(flags, *(event.sender or _NO_SENDER)) + _with_length(repeats), columns


def _read_sent(fields: dict[str, Any], view: memoryview, columns: Sequence[memoryview | Blobs]) -> Decoded:
    flags, *sender = _SENT.unpack_from(view)
    rest = iter(columns)
    fields["tiers"] = bytes(next(rest))  # type: ignore[arg-type]
    if flags & _HAS_SENDER:
        fields["sender"] = Sender(*sender)
    if flags & _HAS_VISIBLE_AT:
        fields["visible_at_ms"] = tuple(next(rest))
    if flags & _HAS_GROUPS:
        fields["groups"] = tuple(map(bytes, next(rest)))
    if flags & _HAS_DEDUP_IDS:
        fields["dedup_ids"] = tuple(map(bytes, next(rest)))
    if flags & _HAS_DELIVERIES_MAX:
        fields["deliveries_max"] = tuple(next(rest))
    repeats, _ = _read_length(view, _SENT.size)
    numbers = iter(array("Q", bytes(repeats)))
    fields["repeats"] = tuple(zip(numbers, numbers, strict=True))
    attributes = next(rest) if flags & _HAS_ATTRIBUTES else None
    bodies = next(rest)
    assert isinstance(bodies, Blobs)
    assert attributes is None or isinstance(attributes, Blobs)
    return Decoded(Sent(**fields), bodies, attributes)


# An `Arrived` has tiers, origins, groups and errors, then what a `Sent` ends with; its flags are as there.
_ARRIVED_COLUMNS = 1 + len(_ORIGIN) + 2


def _arrived_columns(event: Arrived, bodies: Blobs | None, attributes: Blobs | None) -> tuple[bytes, list[Column]]:
    assert bodies is not None
    last = [bodies] if attributes is None else [attributes, bodies]
    flags = 0 if attributes is None else _HAS_ATTRIBUTES
    return bytes((flags,)), [array("B", event.tiers), *_origin_columns(event), *last]


def _read_arrived(fields: dict[str, Any], view: memoryview, columns: Sequence[memoryview | Blobs]) -> Decoded:
    fields["tiers"] = bytes(columns[0])  # type: ignore[arg-type]
    fields |= _read_origins(columns[1:_ARRIVED_COLUMNS])
    attributes = columns[_ARRIVED_COLUMNS] if view[0] & _HAS_ATTRIBUTES else None
    bodies = columns[-1]
    assert isinstance(bodies, Blobs)
    assert attributes is None or isinstance(attributes, Blobs)
    return Decoded(Arrived(**fields), bodies, attributes)


def _read_copied(fields: dict[str, Any], view: memoryview, columns: Sequence[memoryview | Blobs]) -> Decoded:
    """Runs of a `Copied` are in its key: there are fewer of them than of its rows, the bodies."""
    runs, _ = _read_length(view, 0)
    numbers = iter(array("Q", bytes(runs)))
    fields["runs"] = tuple(map(Run, numbers, numbers, numbers))
    *attributes, bodies = columns
    assert isinstance(bodies, Blobs)
    return Decoded(Copied(**fields), bodies, attributes[0] if attributes else None)  # type: ignore[arg-type]


_WITH_BODIES = {Sent: _read_sent, Arrived: _read_arrived, Copied: _read_copied}


# Short cuts for what a healthy message goes through: the same bytes as by their layouts, in one or two steps.

_ACKED = struct.Struct("<BBIqQI")
_LEASED = struct.Struct("<BBIqQQQ")
# A send without anything optional but a sender: its key, and how many columns it has.
_PLAIN_SENT = struct.Struct("<BBIqBQIQI")
_PLAIN_COLUMNS = 2
# A frame of one row: its head, four entries of the directory, and lane, first, length and tier with their zeros.
_ONE_RUN = struct.Struct("<IHHIIIIIIIIB7xQI4xB7x")
_ONE_RUN_FRONT = (1, 4, 0, ord("B"), 1, ord("Q"), 8, ord("I"), 4, ord("B"), 1)


def _short_acked(event: Acked, _: Blobs | None) -> Encoded:
    mask = event.mask
    size = (mask.bit_length() + 7) >> 3
    numbers = _ACKED.pack(7, VERSION, event.queue, event.at_ms, event.lease, size)
    return numbers + mask.to_bytes(size, "little"), None


def _short_leased(event: Leased, _: Blobs | None) -> Encoded | None:
    if len(event.runs) != 1:
        return None
    key = _LEASED.pack(6, VERSION, event.queue, event.at_ms, event.lease, event.token, event.lease_ms)
    return key, _ONE_RUN.pack(*_ONE_RUN_FRONT, *event.runs[0], event.tiers[0])


def _short_sent(event: Sent, bodies: Blobs | None) -> Encoded | None:
    if not (
        event.visible_at_ms is None
        and event.groups is None
        and event.dedup_ids is None
        and event.deliveries_max is None
        and not event.repeats
    ):
        return None
    assert bodies is not None
    flags = 0 if event.sender is None else _HAS_SENDER
    key = _PLAIN_SENT.pack(5, VERSION, event.queue, event.at_ms, flags, *(event.sender or _NO_SENDER), 0)
    return key, pack_bytes_and_blobs(event.tiers, bodies)


_SHORT: dict[type[Any], Callable[[Any, Blobs | None], Encoded | None]] = {
    Acked: _short_acked,
    Leased: _short_leased,
    Sent: _short_sent,
}


# And back. A record that is not exactly what the short cut writes is read by its layout.


def _short_read_acked(key: Buffer, value: Buffer | None) -> Decoded | None:
    _, _, queue, at_ms, lease, size = _ACKED.unpack_from(key)
    mask = key[_ACKED.size :]
    if value is not None or len(mask) != size:
        return None
    return Decoded(Acked(queue, at_ms, lease, int.from_bytes(mask, "little")))


def _short_read_leased(key: Buffer, value: Buffer | None) -> Decoded | None:
    if value is None or len(value) != _ONE_RUN.size:
        return None
    _, _, queue, at_ms, lease, token, lease_ms = _LEASED.unpack_from(key)
    *front, lane, first, length, tier = _ONE_RUN.unpack(value)
    if value != _ONE_RUN.pack(*front, lane, first, length, tier) or tuple(front) != _ONE_RUN_FRONT:
        return None
    return Decoded(Leased(queue, at_ms, lease, token, lease_ms, (Run(lane, first, length),), bytes((tier,))))


def _short_read_sent(key: Buffer, value: Buffer | None) -> Decoded | None:
    if value is None or len(key) != _PLAIN_SENT.size:
        return None
    _, _, queue, at_ms, flags, *sender, repeats_bytes = _PLAIN_SENT.unpack_from(key)
    if flags & ~_HAS_SENDER or repeats_bytes:
        return None
    columns = unpack(value)
    if len(columns) != _PLAIN_COLUMNS or isinstance(columns[0], Blobs) or not isinstance(columns[1], Blobs):
        return None
    return Decoded(Sent(queue, at_ms, bytes(columns[0]), Sender(*sender) if flags else None), columns[1])


_SHORT_READERS: dict[tuple[int, int], Callable[[Buffer, Buffer | None], Decoded | None]] = {
    (5, VERSION): _short_read_sent,
    (6, VERSION): _short_read_leased,
    (7, VERSION): _short_read_acked,
}
