"""What the history gets of messages when they are settled: one fact for each.

An event says which messages it settles; when these were sent and leased, how often
and with what error only the state knows, and it forgets them with the event. So the
question is asked just before the event is applied.

Messages of a run that share their past share one `Settlement`, however many they
are: a healthy ack of a thousand makes one tuple.

A purge or a deletion may settle millions of rows at once. It takes the columns of
the queue away as they are, and their facts are made in turns, after the event
(`Everything`).
"""

from collections.abc import Callable, Iterator
from copy import copy
from heapq import merge
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

from penstock.contract.limits import TURN_ROWS
from penstock.contract.messages import TIERS, MessageOutcome
from penstock.contract.queue_settings import History
from penstock.core.queue.events import Acked, Buried, Cancelled, Event, Expired, Moved, Purged, QueueDeleted, Redriven
from penstock.core.queue.lanes import Lane, SentTimes, Stretch
from penstock.core.queue.leases import RunPart
from penstock.core.queue.message import Run
from penstock.core.queue.rows import MOVING
from penstock.core.queue.state import State

T = TypeVar("T")


class Settlement(NamedTuple):
    """Consecutive messages that one event settled alike."""

    # Where they were settled.
    queue: int
    # Of the first, there; the others follow with the next numbers of the lane.
    key: int
    count: int  # type: ignore[assignment] # It hides `tuple.count`, which is not called.
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
    ending: MessageOutcome
    error: str


def settlements(state: State, event: Event) -> "list[Settlement] | Everything":
    """What this event settles, as it stands before the event is applied. Time moves to the event's first."""
    settled = _SETTLED.get(type(event))
    if settled is None or (state.settings.history is History.OFF and type(event) not in {Purged, QueueDeleted}):
        return []
    state.advance(event.at_ms)
    return settled(state, event)


def _of_ack(state: State, event: Acked) -> list[Settlement]:
    leases = state.leases
    slot = event.lease & 0xFFFF_FFFF
    mask, at_ms = event.mask, event.at_ms
    leased_at_ms = leases.leased_at_ms[slot]
    if slot not in leases.parts and mask.bit_count() == leases.count[slot] and mask == leases.held[slot]:
        return [_of_part(state, leases.run(slot), leased_at_ms, at_ms, MessageOutcome.ACKED)]
    late = mask & leases.late.get(slot, 0)
    found: list[Settlement] = []
    for part in leases.members(slot, mask & ~late):
        if isinstance(part, int):
            found.append(_of_row(state, part, at_ms, MessageOutcome.ACKED))
        else:
            found.append(_of_part(state, part, leased_at_ms, at_ms, MessageOutcome.ACKED))
    for part in leases.members(slot, late):
        if isinstance(part, int):
            found.append(_of_row(state, part, at_ms, MessageOutcome.ACKED))
        else:
            found += _of_waiting(state, Run(*part[:3]), at_ms, MessageOutcome.ACKED)
    return found


def _of_move(state: State, event: Buried | Redriven) -> list[Settlement]:
    if event.into == state.queue:
        return []
    ending = MessageOutcome.BURIED if type(event) is Buried else MessageOutcome.REDRIVEN
    return _of_runs(state, event.runs, event.at_ms, ending)


def _of_ended_move(state: State, event: Moved) -> list[Settlement]:
    move = state.moves.pending
    if move is None or not event.is_done:
        return []
    return _of_runs(
        state, move.runs, event.at_ms, MessageOutcome.REDRIVEN if move.is_redrive else MessageOutcome.BURIED
    )


def _of_expiry(state: State, event: Expired) -> list[Settlement]:
    return _of_runs(state, event.runs, event.at_ms, MessageOutcome.EXPIRED)


def _of_cancellation(state: State, event: Cancelled) -> list[Settlement]:
    return _of_runs(state, event.runs, event.at_ms, MessageOutcome.CANCELLED)


def _of_purge(state: State, event: Purged) -> "Everything":
    return Everything(state, event.at_ms, MessageOutcome.PURGED)


def _of_deletion(state: State, event: QueueDeleted) -> "Everything":
    return Everything(state, event.at_ms, MessageOutcome.DELETED)


_SETTLED: "dict[type[Event], Callable[[State, Any], list[Settlement] | Everything]]" = {
    Acked: _of_ack,
    Buried: _of_move,
    Redriven: _of_move,
    Moved: _of_ended_move,
    Expired: _of_expiry,
    Cancelled: _of_cancellation,
    Purged: _of_purge,
    QueueDeleted: _of_deletion,
}
# The events that may settle anything.
SETTLING = frozenset(_SETTLED)


# An entry is what a settlement is made of, as one number that sorts: number · whether it is a row · its slot, or its
# place among the parts.
_NUMBER = 33
_IS_ROW = 1 << 32
_INDEX = _IS_ROW - 1


class Everything:
    """All that a queue holds at the moment of a purge or a deletion, to be told of in turns.

    To be made before the event is applied, which puts new columns in the place of these.
    """

    __slots__ = ("queue", "count", "at_ms", "_state", "_ending")

    def __init__(self, state: State, at_ms: int, ending: MessageOutcome) -> None:
        self.queue = state.queue
        self._state = _kept(state)
        self.at_ms = at_ms
        self._ending = ending
        # How many messages there are to tell of.
        self.count = state.live - (state.moves.count if ending is MessageOutcome.PURGED else 0)
        if state.settings.history is History.OFF:
            self.count = 0

    def __iter__(self) -> Iterator[Settlement]:
        return chain.from_iterable(self.turns())

    def turns(self) -> Iterator[list[Settlement]]:
        """Yield the facts in the order of lane and number, some at a time; nothing while they are sorted."""
        if not self.count:
            return
        state, at_ms, ending = self._state, self.at_ms, self._ending
        parts: list[tuple[RunPart, int]] = []
        ordered: list[list[list[int]]] = [[] for _ in state.lanes]
        for entries in chain(_chunks(self._stretches(), parts), _chunks(_leased(state), parts), self._rows()):
            for lane, chunk in enumerate(entries):
                if chunk:
                    chunk.sort()
                    ordered[lane].append(chunk)
            yield []
        for chunks in ordered:
            for some in _by(TURN_ROWS, merge(*chunks)):
                yield [
                    _of_row(state, entry & _INDEX, at_ms, ending)
                    if entry & _IS_ROW
                    else _of_part(state, *parts[entry & _INDEX], at_ms, ending)
                    for entry in some
                ]

    def take_apart(self) -> Iterator[None]:
        """Free what is kept, some at a time: to free a dictionary of a million entries is a long step, too."""
        state = self._state
        rows, groups, leases, dedup = state.rows, state.groups, state.leases, state.dedup
        wheels = (state.delays, state.aging, state.reverts, leases.wheel)
        crowded: list[Any] = [rows.index, rows.errors, rows.dedup_ids, rows.origins, rows.by_origin, rows.escalations]
        crowded += [rows.free, groups.numbers, groups.names, groups.orders, groups.free, *groups.rotations]
        crowded += [leases.held, leases.late, leases.parts, leases.first_leased_ms, leases.deadlines, leases.free]
        crowded += [*chain.from_iterable(wheel.crowded() for wheel in wheels), leases.index or {}]
        crowded += [*(shelf.runs for lane in state.lanes for shelf in lane.shelves), state.spent, dedup.live]
        if self._ending is MessageOutcome.DELETED:
            crowded += [dedup.window, dedup.order, state.senders.known]
        for entries in crowded:
            while entries:
                for _ in range(min(len(entries), TURN_ROWS)):
                    if isinstance(entries, dict):
                        entries.popitem()
                    else:
                        entries.pop()
                yield

    def _stretches(self) -> Iterator[tuple[RunPart, int]]:
        state = self._state
        for lane in state.lanes:
            for tier, shelf in enumerate(lane.shelves):
                for stretch in shelf:
                    yield _part_of_stretch(state, lane, stretch, tier)

    def _rows(self) -> Iterator[list[list[int]]]:
        rows, spares_moving = self._state.rows, self._ending is MessageOutcome.PURGED
        for some in _by(TURN_ROWS, iter(rows.index.items())):
            entries: list[list[int]] = [[] for _ in self._state.lanes]
            for key, slot in some:
                if not spares_moving or rows.state[slot] != MOVING:
                    entries[key & 7].append(key >> 3 << _NUMBER | _IS_ROW | slot)
            yield entries


def _chunks(found: Iterator[tuple[RunPart, int]], parts: list[tuple[RunPart, int]]) -> Iterator[list[list[int]]]:
    for some in _by(TURN_ROWS, found):
        entries: list[list[int]] = [[] for _ in range(TIERS)]
        for index, (part, _) in enumerate(some, start=len(parts)):
            entries[part[0]].append(part[1] << _NUMBER | index)
        parts += some
        yield entries


def _leased(state: State) -> Iterator[tuple[RunPart, int]]:
    """Runs in leases; rows in a lease are among the rows."""
    leases = state.leases
    for slot, held in enumerate(leases.held):
        if held and leases.until_ms[slot] >= 0:
            leased_at_ms = leases.leased_at_ms[slot]
            for part in leases.members(slot, held):
                if not isinstance(part, int):
                    yield part, leased_at_ms


def _by(most: int, entries: Iterator[T]) -> Iterator[list[T]]:
    while some := list(islice(entries, most)):
        yield some


def _kept(state: State) -> State:
    """A queue as it is, whatever is put in the place of its columns."""
    kept = copy(state)
    kept.lanes = tuple(copy(lane) for lane in state.lanes)
    kept.dedup = copy(state.dedup)
    return kept


def _of_runs(state: State, runs: tuple[Run, ...], at_ms: int, ending: MessageOutcome) -> list[Settlement]:
    return list(chain.from_iterable(_of_waiting(state, run, at_ms, ending) for run in runs))


def _of_waiting(state: State, run: Run, at_ms: int, ending: MessageOutcome) -> Iterator[Settlement]:
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
        yield _of_part(state, *_part_of_stretch(state, lane, [first, upto, *stretch[2:]], tier), at_ms, ending)
        first = upto


def _part_of_stretch(state: State, lane: Lane, stretch: Stretch, tier: int) -> tuple[RunPart, int]:
    """A run on a shelf as if it were leased, and when it was, if ever."""
    first, end, deliveries, lease, first_leased_ms, served_tier = stretch
    if not lease:
        return (lane.tier, first, end - first, 0, 0, tier), 0
    # The lease of a run that came back is remembered until the run is leased again.
    leased_at_ms = state.leases.leased_at_ms[lease & 0xFFFF_FFFF]
    return (lane.tier, first, end - first, deliveries, first_leased_ms, served_tier), leased_at_ms


def _of_part(state: State, part: RunPart, leased_at_ms: int, at_ms: int, ending: MessageOutcome) -> Settlement:
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


def _of_row(state: State, slot: int, at_ms: int, ending: MessageOutcome) -> Settlement:
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
