"""What is told of messages when they are settled: one fact for each, for the history of the queue.

An event says which messages it settles; when these were sent and leased, how often
and with what error only the state knows, and it forgets them with the event. So the
question is asked just before the event is applied.

Messages of a run that share their past share one `Settlement`, however many they
are: purging ten million of them takes as long as copying their times of sending,
and a healthy ack of a thousand makes one tuple.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

from penstock.contract.queue_settings import History
from penstock.core.events import Acked, Buried, Event, Expired, Moved, Purged, QueueDeleted, Redriven
from penstock.core.lanes import Lane, SentTimes, Stretch
from penstock.core.leases import RunPart
from penstock.core.message import Run
from penstock.core.rows import MOVING
from penstock.core.state import State


class Ending(IntEnum):
    """How a message's life in a queue ended. The numbers are written to disk."""

    ACKED = 1
    BURIED = 2
    EXPIRED = 3
    PURGED = 4
    REDRIVEN = 5
    DELETED = 6


class Settlement(NamedTuple):
    """Consecutive messages that one event settled alike."""

    # Where they were settled.
    queue: int
    # Of the first, there; the others follow with the next numbers of the lane.
    key: int
    count: int  # type: ignore[assignment] # Nobody counts the fields of a tuple.
    # The identity of the first: queue, lane and number in its first queue; the others follow.
    home: int
    lane: int
    number: int
    # The tier they were served at last, or waited in if they never were.
    tier: int
    group: bytes
    # Of the first send, even if they were moved since. Marks are in numbers of ``queue``.
    sent_at_ms: SentTimes
    # In this queue; 0 if they never were leased here.
    first_leased_ms: int
    last_leased_ms: int
    settled_at_ms: int
    # With those before a move.
    deliveries: int
    ending: Ending
    error: str


def settlements(state: State, event: Event) -> list[Settlement]:
    """What this event settles, as it stands before the event is applied. Time moves to the event's first."""
    settled = _SETTLED.get(type(event))
    if settled is None or state.settings.history is History.OFF:
        return []
    state.advance(event.at_ms)
    return settled(state, event)


def _of_ack(state: State, event: Acked) -> list[Settlement]:
    leases = state.leases
    slot = event.lease & 0xFFFF_FFFF
    mask, at_ms = event.mask, event.at_ms
    leased_at_ms = leases.leased_at_ms[slot]
    if slot not in leases.parts and mask.bit_count() == leases.count[slot] and mask == leases.held[slot]:
        return [_of_part(state, leases.run(slot), leased_at_ms, at_ms, Ending.ACKED)]
    late = mask & leases.late.get(slot, 0)
    found: list[Settlement] = []
    for part in leases.members(slot, mask & ~late):
        if isinstance(part, int):
            found.append(_of_row(state, part, at_ms, Ending.ACKED))
        else:
            found.append(_of_part(state, part, leased_at_ms, at_ms, Ending.ACKED))
    for part in leases.members(slot, late):
        if isinstance(part, int):
            found.append(_of_row(state, part, at_ms, Ending.ACKED))
        else:
            found += _of_waiting(state, Run(*part[:3]), at_ms, Ending.ACKED)
    return found


def _of_move(state: State, event: Buried | Redriven) -> list[Settlement]:
    if event.into == state.queue:
        return []
    ending = Ending.BURIED if type(event) is Buried else Ending.REDRIVEN
    return _of_runs(state, event.runs, event.at_ms, ending)


def _of_ended_move(state: State, event: Moved) -> list[Settlement]:
    move = state.moves.pending
    if move is None or not event.is_done:
        return []
    return _of_runs(state, move.runs, event.at_ms, Ending.REDRIVEN if move.is_redrive else Ending.BURIED)


def _of_expiry(state: State, event: Expired) -> list[Settlement]:
    return _of_runs(state, event.runs, event.at_ms, Ending.EXPIRED)


def _of_purge(state: State, event: Purged) -> list[Settlement]:
    return _of_everything(state, event.at_ms, Ending.PURGED, is_moving_spared=True)


def _of_deletion(state: State, event: QueueDeleted) -> list[Settlement]:
    return _of_everything(state, event.at_ms, Ending.DELETED)


_SETTLED: dict[type[Event], Callable[[State, Any], list[Settlement]]] = {
    Acked: _of_ack,
    Buried: _of_move,
    Redriven: _of_move,
    Moved: _of_ended_move,
    Expired: _of_expiry,
    Purged: _of_purge,
    QueueDeleted: _of_deletion,
}
# The events that may settle anything.
SETTLING = frozenset(_SETTLED)


def _of_everything(state: State, at_ms: int, ending: Ending, *, is_moving_spared: bool = False) -> list[Settlement]:
    found: list[Settlement] = []
    for lane in state.lanes:
        for tier, shelf in enumerate(lane.shelves):
            found += [_of_stretch(state, lane, stretch, tier, at_ms, ending) for stretch in shelf]
    leases = state.leases
    for slot, held in enumerate(leases.held):
        # Rows in a lease are among the rows.
        if held and leases.until_ms[slot] >= 0:
            leased_at_ms = leases.leased_at_ms[slot]
            for part in leases.members(slot, held):
                if not isinstance(part, int):
                    found.append(_of_part(state, part, leased_at_ms, at_ms, ending))
    rows = state.rows
    found += [
        _of_row(state, slot, at_ms, ending)
        for slot in rows.index.values()
        if not (is_moving_spared and rows.state[slot] == MOVING)
    ]
    return found


def _of_runs(state: State, runs: tuple[Run, ...], at_ms: int, ending: Ending) -> list[Settlement]:
    return list(chain.from_iterable(_of_waiting(state, run, at_ms, ending) for run in runs))


def _of_waiting(state: State, run: Run, at_ms: int, ending: Ending) -> Iterator[Settlement]:
    """Messages that are in no lease, wherever else they are."""
    lane, first, end = state.lanes[run.lane], run.first, run.first + run.length
    while first < end:
        slot = state.slot_of(run.lane, first)
        if slot:
            yield _of_row(state, slot, at_ms, ending)
            first += 1
            continue
        tier = state.shelf_tier(lane, first)
        stretch = lane.shelves[tier].stretch_of(first)
        upto = min(end, stretch[1])
        yield _of_stretch(state, lane, [first, upto, *stretch[2:]], tier, at_ms, ending)
        first = upto


def _of_stretch(state: State, lane: Lane, stretch: Stretch, tier: int, at_ms: int, ending: Ending) -> Settlement:
    first, end, deliveries, lease, first_leased_ms, served_tier = stretch
    if not lease:
        return _of_part(state, (lane.tier, first, end - first, 0, 0, tier), 0, at_ms, ending)
    # While a run is back from a lease and nobody has had it since, the lease is remembered.
    leased_at_ms = state.leases.leased_at_ms[lease & 0xFFFF_FFFF]
    part = (lane.tier, first, end - first, deliveries, first_leased_ms, served_tier)
    return _of_part(state, part, leased_at_ms, at_ms, ending)


def _of_part(state: State, part: RunPart, leased_at_ms: int, at_ms: int, ending: Ending) -> Settlement:
    lane, first, count, deliveries, first_leased_ms, tier = part
    queue = state.queue
    sent_at_ms = state.lanes[lane].sent_times(first, first + count)
    return Settlement(
        queue,
        first << 3 | lane,
        count,
        queue,
        lane,
        first,
        tier,
        b"",
        sent_at_ms,
        first_leased_ms,
        leased_at_ms,
        at_ms,
        deliveries,
        ending,
        "",
    )


def _of_row(state: State, slot: int, at_ms: int, ending: Ending) -> Settlement:
    rows, queue = state.rows, state.queue
    lane, number, deliveries = rows.lane[slot], rows.number[slot], rows.deliveries[slot]
    home, sent_at_ms, past = (queue, lane, number), rows.sent_at_ms[slot], 0
    origin = rows.origins.get(slot)
    if origin is not None:
        home, sent_at_ms, past = origin[:3], origin.sent_at_ms, origin.deliveries
    return Settlement(
        queue,
        number << 3 | lane,
        1,
        *home,
        rows.served_tier[slot] if deliveries else rows.tier[slot],
        state.groups.names[rows.group[slot]],
        sent_at_ms,
        rows.first_leased_ms[slot] if deliveries else 0,
        rows.last_leased_ms[slot] if deliveries else 0,
        at_ms,
        past + deliveries,
        ending,
        rows.errors.get(slot, ""),
    )
