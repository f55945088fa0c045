"""A queue's state as plain values, and back.

`freeze` returns only dictionaries, lists, tuples, texts, bytes, and numbers of at
most 64 bits (a wider one is a text, in hex), for the writer of a snapshot; two
queues that would behave alike freeze alike. `thaw` takes lists for tuples too, as
few formats know the difference. Left out is what follows from the rest: the
timers, which are set again from the rows and the leases, indexes, and hints that
only save time.

Each attribute of each class has its name in the table of `LAYOUTS` or is listed there
as left out: renaming an attribute changes no format, and one that is not decided on
is not written, and fails a test. A name that is missing or unknown is damage.

A queue may hold millions of rows, so what is long is a column or is handed over
as it is: nothing here loops over the messages of a run.
"""

from array import array
from collections import Counter, deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from itertools import compress, count, repeat
from operator import add, and_, lshift, or_
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.contract.queue_settings import BadSettings, QueueSettings
from penstock.core.queue.deduplication import Dedup, Remembered, Senders
from penstock.core.queue.fairness import Shares
from penstock.core.queue.lanes import Lane, Shelf
from penstock.core.queue.leases import Deadline, Leases
from penstock.core.queue.message import Audit, Origin, Run
from penstock.core.queue.message_groups import MessageGroups, Tenants
from penstock.core.queue.rate_meter import Meter
from penstock.core.queue.rows import FREE, LEASED, RESTING, WAITING, Escalation, Rows
from penstock.core.queue.state import Move, Moves, State

Frozen: TypeAlias = Any

# The settings of a queue are written under this name, as the text they are in events.
_SETTINGS = "settings"


class StateUnreadable(Exception):
    """What was frozen has a name too few or too many: this code would not have written it."""


class Layout(NamedTuple):
    """How the attributes of a class are written."""

    # From the attribute to its name on disk.
    names: Mapping[str, str]
    # Attributes that follow from others, or are written elsewhere.
    left_out: AbstractSet[str] = frozenset()
    # Attributes that are bitmaps and tags, which may have any number of bits.
    wide: AbstractSet[str] = frozenset()


LAYOUTS: Final[Mapping[type, Layout]] = {
    State: Layout(
        {
            "queue": "queue",
            "created_at_ms": "created_at_ms",
            "now_ms": "now_ms",
            "is_behind": "is_behind",
            "lanes": "lanes",
            "rows": "rows",
            "groups": "groups",
            "leases": "leases",
            "shares": "shares",
            "dedup": "dedup",
            "senders": "senders",
            "audit": "audit",
            "spent": "spent",
            "moves": "moves",
            "ready": "ready",
            "plain": "plain",
            "leased": "leased",
            "resting": "resting",
            "order": "order",
            "drained": "drained",
            "started": "started",
        },
        left_out={"settings", "due_ms", "delays", "aging", "reverts", "tally"},
    ),
    Lane: Layout(
        {
            "tier": "tier",
            "next": "next",
            "live": "live",
            "shelves": "shelves",
            "edges": "edges",
            "_starts": "starts",
            "_times": "times",
            "_blocks": "blocks",
            "_trim_at": "trim_at",
        },
    ),
    Shelf: Layout(
        {
            "runs": "runs",
            "count": "count",
        },
        left_out={"head"},
    ),
    Rows: Layout(
        {
            "lane": "lane",
            "number": "number",
            "tier": "tier",
            "state": "state",
            "deliveries": "deliveries",
            "deliveries_max": "deliveries_max",
            "first_leased_ms": "first_leased_ms",
            "last_leased_ms": "last_leased_ms",
            "served_tier": "served_tier",
            "group": "group",
            "order": "order",
            "sent_at_ms": "sent_at_ms",
            "since_ms": "since_ms",
            "visible_at_ms": "visible_at_ms",
            "lease": "lease",
            "bit": "bit",
            "before": "before",
            "after": "after",
            "free": "free",
            "errors": "errors",
            "dedup_ids": "dedup_ids",
            "origins": "origins",
            "escalations": "escalations",
        },
        left_out={"index", "by_origin"},
    ),
    MessageGroups: Layout(
        {
            "is_fifo": "is_fifo",
            "numbers": "numbers",
            "names": "names",
            "heads": "heads",
            "tails": "tails",
            "visible": "visible",
            "queued": "queued",
            "tenants": "tenants",
            "members": "members",
            "open_at": "open_at",
            "rotations": "rotations",
            "free": "free",
        },
        left_out={"rows", "plain", "opens_early", "orders", "_hint"},
    ),
    Tenants: Layout(
        {
            "time_ms": "time_ms",
            "minute": "minute",
            "total_ms": "total_ms",
            "total_minute": "total_minute",
        },
        left_out={"percent", "leased_min", "time_percent", "held"},
    ),
    Leases: Layout(
        {
            "token": "token",
            "until_ms": "until_ms",
            "lease_ms": "lease_ms",
            "leased_at_ms": "leased_at_ms",
            "served_tier": "served_tier",
            "lane": "lane",
            "first": "first",
            "count": "count",
            "deliveries": "deliveries",
            "uses": "uses",
            "held": "held",
            "late": "late",
            "parts": "parts",
            "first_leased_ms": "first_leased_ms",
            "deadlines": "deadlines",
            "free": "free",
            "live": "live",
        },
        left_out={"wheel", "index", "indexed"},
        wide={"held", "late"},
    ),
    Shares: Layout(
        {
            "clock": "clock",
            "finish": "finish",
        },
        left_out={"weights", "is_strict", "strides", "cycle"},
        wide={"clock", "finish"},
    ),
    Dedup: Layout(
        {
            "live": "live",
            "window": "window",
            "order": "order",
        },
    ),
    Senders: Layout(
        {
            "known": "known",
        },
    ),
    Remembered: Layout(
        {
            "epoch": "epoch",
            "seen_at_ms": "seen_at_ms",
            "floor": "floor",
            "sends": "sends",
        },
    ),
    Moves: Layout(
        {
            "pending": "pending",
            "started": "started",
            "arrived": "arrived",
        },
    ),
    Meter: Layout(
        {
            "_window": "window",
            "_ends_ms": "ends_ms",
            "_count": "count",
            "_before": "before",
        },
    ),
}


def freeze(state: State) -> dict[str, Frozen]:
    return {_SETTINGS: state.settings.to_json(), **_fields(state)}


def thaw(frozen: dict[str, Frozen]) -> State:
    """Make the queue that `freeze` was given. Raises `StateUnreadable`."""
    fields = dict(frozen)
    try:
        settings = QueueSettings.from_json(fields.pop(_SETTINGS, ""))
    except BadSettings as error:
        raise StateUnreadable(f"{_SETTINGS}: {error}") from None
    state = State(0, settings)
    _fill(state, fields)
    _restore(state)
    _set_timers(state)
    return state


def _fields(thing: object) -> dict[str, Frozen]:
    names, _, wide = LAYOUTS[type(thing)]
    return {
        name: (_widen if attribute in wide else _freeze)(getattr(thing, attribute)) for attribute, name in names.items()
    }


def _freeze(value: object) -> Frozen:
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    if isinstance(value, array):
        return [value.typecode, value.tobytes()]
    if isinstance(value, Deadline):
        return [_widen(value.mask), value.until_ms, value.lease_ms]
    if isinstance(value, dict):
        return [list(value), _freeze_all(list(value.values()))]
    if isinstance(value, list | tuple | deque):
        return _freeze_all(list(value))
    if isinstance(value, Shelf):
        return {"runs": _freeze(list(value)), "count": value.count}
    return _fields(value)


def _freeze_all(values: list[Any]) -> list[Frozen]:
    """Entries of one kind; if they are plain, or tuples of what is plain, as they are."""
    first = values[0] if values else None
    if isinstance(first, tuple) and not isinstance(first, Deadline | Audit):
        return values
    return values if isinstance(first, int | str | bytes) else [_freeze(value) for value in values]


def _widen(value: Any) -> Frozen:
    if isinstance(value, dict):
        return [list(value), _widen(list(value.values()))]
    return f"{value:x}" if isinstance(value, int) else [f"{entry:x}" for entry in value]


def _fill(thing: object, frozen: dict[str, Frozen]) -> None:
    names, _, wide = LAYOUTS[type(thing)]
    known = set(names.values())
    if known != frozen.keys():
        missing, unknown = sorted(known - frozen.keys()), sorted(frozen.keys() - known)
        raise StateUnreadable(f"{type(thing).__name__}: missing are {missing}, unknown are {unknown}")
    for attribute, name in names.items():
        was, entry = getattr(thing, attribute), frozen[name]
        setattr(thing, attribute, _narrow(was, entry) if attribute in wide else _thaw(was, entry))


def _narrow(like: Any, frozen: Frozen) -> Any:
    if isinstance(like, dict):
        return dict(zip(frozen[0], (int(entry, 16) for entry in frozen[1]), strict=True))
    return int(frozen, 16) if isinstance(like, int) else [int(entry, 16) for entry in frozen]


def _thaw(like: Any, frozen: Frozen) -> Any:
    if like is None or isinstance(like, int | float | str | bytes):
        return frozen
    if isinstance(like, array):
        return array(frozen[0], frozen[1])
    if isinstance(like, dict):
        return dict(zip(frozen[0], frozen[1], strict=True))
    if isinstance(like, tuple | list) and like and not isinstance(like[0], int | bytes):
        return type(like)([_thaw(part, entry) for part, entry in zip(like, frozen, strict=True)])
    if isinstance(like, deque):
        return deque(frozen, maxlen=like.maxlen)
    if isinstance(like, tuple | list):
        # Runs on a shelf are changed in place, so they are not to be shared with what was frozen.
        return type(like)([list(entry) if isinstance(entry, list) else entry for entry in frozen])
    _fill(like, frozen)
    return like


def _restore(state: State) -> None:
    """Give values that are more than lists their types back, and share what is shared."""
    state.groups.rows, state.groups.plain = state.rows, state.plain
    rows = state.rows
    _retype(rows.origins, lambda origin: Origin(*origin))
    _retype(rows.escalations, lambda escalation: Escalation(*escalation))
    rows.by_origin = {origin[:3]: slot for slot, origin in rows.origins.items()}
    # As C loops: there may be millions of rows.
    keys = map(or_, map(lshift, rows.number, repeat(3)), rows.lane)
    rows.index = dict(zip(compress(keys, rows.state), compress(count(), rows.state), strict=True))
    _restore_tenants(state)
    state.groups.find_orders()
    _retype(state.dedup.window, tuple)
    state.dedup.order = deque((until_ms, name) for until_ms, name in state.dedup.order)
    state.audit = deque(
        (Audit(*audit[:5], tuple(Run(*run) for run in audit[5])) for audit in state.audit), maxlen=state.audit.maxlen
    )
    if state.moves.pending is not None:
        into, sequence, is_redrive, runs = state.moves.pending
        state.moves.pending = Move(into, sequence, is_redrive, tuple(Run(*run) for run in runs))
    leases = state.leases
    _retype(leases.parts, lambda parts: [part if isinstance(part, int) else tuple(part) for part in parts])
    _retype(leases.deadlines, lambda deadlines: [Deadline(int(mask, 16), *rest) for mask, *rest in deadlines])
    _restore_senders(state.senders)


def _restore_tenants(state: State) -> None:
    """Count what each group holds."""
    tenants, groups = state.groups.tenants, len(state.groups.names)
    tenants.held = array("I", bytes(4 * groups))
    for group, held in Counter(compress(state.rows.group, _are(state.rows, LEASED))).items():
        if group:
            tenants.held[group] = held


def _restore_senders(senders: Senders) -> None:
    for sender, frozen in senders.known.items():
        known = Remembered(0)
        _fill(known, frozen)  # type: ignore[arg-type]
        _retype(known.sends, lambda messages: array(messages[0], messages[1]))
        senders.known[sender] = known


def _retype(values: dict[Any, Any], retype: Callable[[Any], Any]) -> None:
    for name, value in values.items():
        values[name] = retype(value)


def _set_timers(state: State) -> None:
    rows = state.rows
    resting = _are(rows, RESTING)
    state.delays.fill(compress(rows.visible_at_ms, resting), compress(count(), resting))
    aging_ms = (0, *state.settings.aging_ms[1:])
    if any(aging_ms):
        ages = bytes(map(bool, map(aging_ms.__getitem__, rows.tier)))
        slots = array("Q", compress(count(), map(and_, ages, _are(rows, WAITING, LEASED))))
        thresholds = map(aging_ms.__getitem__, map(rows.tier.__getitem__, slots))
        state.aging.fill(map(add, map(rows.since_ms.__getitem__, slots), thresholds), slots)
    for slot, escalation in rows.escalations.items():
        if escalation.until_ms:
            state.reverts.add(escalation.until_ms, slot)
    state.leases.set_timers()
    state.find_due()


def _are(rows: Rows, *states: int) -> bytes:
    """For each slot 1 if it is in one of these states, and 0 if not."""
    return rows.state.tobytes().translate(bytes(state in states for state in range(256)))


assert FREE == 0, "a column of states says which slots are taken"
