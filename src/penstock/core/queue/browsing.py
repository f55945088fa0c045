"""Going through what a queue holds, a page at a time.

The order is: what waits, the most urgent tier first, in each tier the runs by lane
and number and then the rows by group, in each group from its front; then what rests,
is leased, spent or on its way as rows; then what is leased as runs.

    position     (0, tier, 0, lane, number)                       a run on a shelf
                 (0, tier, 1, group, key, since, order)           a row in the list of its group
                 (0, tier, 1, group)                              all of a group
                 (1, slot)                                        a row that does not wait
                 (2, slot, bit)                                   a message of a lease of runs

A position says where to go on: behind what it names, if that is still there, and
where it would be if not. Messages that change their place between two pages may be
seen twice or not at all; those that stay are seen once.

Nothing here changes the queue. The caller has moved it to the present. How much is
looked at for one page has a limit, so a page may be short, or empty, and not the last.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from penstock.contract.limits import LEASE_MESSAGES_MAX, PEEK_SCANNED_MAX
from penstock.contract.messages import TIERS
from penstock.core.queue.leases import bit_runs
from penstock.core.queue.queries import Seen, look_at_row, seen_in_run
from penstock.core.queue.rows import LEASED, MOVING, RESTING, SPENT, STATES, WAITING, key
from penstock.core.queue.state import State

PLACES = STATES[1:]

Position: TypeAlias = tuple[int, ...]
# Where it was looked, and what was there, if it is sought.
Step: TypeAlias = tuple[Position, Seen | None]

_WAITING, _ROWS, _RUNS = range(3)
_SHELF, _LIST = range(2)
# How many numbers a position may have, by how it begins.
_LENGTHS = {(_WAITING, _SHELF): {5}, (_WAITING, _LIST): {4, 7}, (_ROWS,): {2}, (_RUNS,): {3}}
_TEXT = re.compile(r"[0-9a-f]{1,16}(?:-[0-9a-f]{1,16}){1,6}")
# Empty groups and free leases are passed over so many at a time: a look at one costs next to nothing.
_PASSED = 64
_first = itemgetter(0)


class BadCursor(ValueError):
    """A text is none that a page ended with."""


class Sought(NamedTuple):
    """Which messages; None for any."""

    place: str | None = None
    tier: int | None = None
    # b"" are those without one.
    group: bytes | None = None


class Browsed(NamedTuple):
    """Some messages, where each was found, and where to go on; None at the end."""

    positions: list[Position]
    seen: list[Seen]
    after: Position | None


def to_text(position: Position | None) -> str:
    """Return a position as a text that means nothing to anybody else; "" for the end.

    >>> to_text((1, 31)), from_text("1-1f")
    ('1-1f', (1, 31))
    """
    return "" if position is None else "-".join(f"{number:x}" for number in position)


def from_text(text: str) -> Position:
    if not text:
        return ()
    if not _TEXT.fullmatch(text):
        raise BadCursor(f"{text[:100]!r} is not where a page ended")
    position = tuple(int(part, 16) for part in text.split("-"))
    head = (_WAITING, *position[2:3]) if position[0] == _WAITING else position[:1]
    if len(position) not in _LENGTHS.get(head, ()):
        raise BadCursor(f"{text!r} is not where a page ended")
    return position


def browse(
    state: State, sought: Sought, *, after: Position = (), most: int, steps_max: int = PEEK_SCANNED_MAX
) -> Browsed:
    """Return at most ``most`` messages that follow a position, after a look at no more than ``steps_max``."""
    found = Browsed([], [], None)
    steps = _walk(state, sought, after)
    for position, seen in islice(steps, steps_max):
        after = position
        if seen is not None:
            found.positions.append(position)
            found.seen.append(seen)
            if len(found.seen) == most:
                break
    has_more = next(steps, None) is not None
    return found._replace(after=after) if has_more else found


def _walk(state: State, sought: Sought, after: Position) -> Iterator[Step]:
    section = after[0] if after else _WAITING
    if section <= _WAITING and sought.place in {None, "waiting"}:
        yield from _waiting(state, sought, after)
    if section <= _ROWS and sought.place != "waiting":
        yield from _rows(state, sought, after[1] + 1 if after and section == _ROWS else 1)
    if sought.place in {None, "leased"} and not sought.group and state.leases.live:
        slot, bit = after[1:] if section == _RUNS else (0, -1)
        yield from _leased_runs(state, sought, slot, min(bit, LEASE_MESSAGES_MAX) + 1)


def _waiting(state: State, sought: Sought, after: Position) -> Iterator[Step]:
    for tier in range(after[1] if after else 0, TIERS):
        if sought.tier not in {None, tier} or not state.ready[tier]:
            continue
        here = after if after and tier == after[1] else ()
        if not sought.group and not (here and here[2] == _LIST):
            yield from _shelves(state, tier, here)
        if state.ready[tier] > state.plain[tier]:
            yield from _lists(state, tier, sought.group, here if here and here[2] == _LIST else ())


def _shelves(state: State, tier: int, after: Position) -> Iterator[Step]:
    lane_from, number_from = (after[3], after[4] + 1) if after else (0, 0)
    for lane in state.lanes[tier:]:
        shelf = lane.shelves[tier]
        if lane.tier < lane_from or not shelf.count:
            continue
        lowest = number_from if lane.tier == lane_from else 0
        index = max(shelf.head, bisect_right(shelf.runs, lowest, lo=shelf.head, key=_first) - 1)
        for first, end, deliveries, *_ in islice(shelf.runs, index, None):
            for number in range(max(first, lowest), end):
                position = (_WAITING, tier, _SHELF, lane.tier, number)
                yield position, seen_in_run(state, lane, number, "waiting", deliveries)


def _lists(state: State, tier: int, name: bytes | None, after: Position) -> Iterator[Step]:
    groups, rows = state.groups, state.rows
    for group in _groups(state, name, after):
        if not groups.visible[group * TIERS + tier]:
            if group % _PASSED == 0:
                yield (_WAITING, tier, _LIST, group), None
            continue
        is_ordered = groups.is_ordered(group)
        within = after[4:] if after and group == after[3] else ()
        for slot, is_seen in _listed(state, group, tier, within):
            message = key(rows.lane[slot], rows.number[slot])
            position = (_WAITING, tier, _LIST, group, message, *_place(state, slot, is_ordered=is_ordered))
            is_sought = not is_seen and rows.state[slot] == WAITING and rows.tier[slot] == tier
            yield position, look_at_row(state, slot) if is_sought else None


def _groups(state: State, name: bytes | None, after: Position) -> Sequence[int]:
    """Return the numbers of the groups that are left to be looked at."""
    lowest = 0 if not after else after[3] if len(after) > 4 else after[3] + 1
    if name is None:
        return range(lowest, len(state.groups.names))
    number = state.groups.numbers.get(name) if name else 0
    return [] if number is None or number < lowest else [number]


def _listed(state: State, group: int, tier: int, within: Position) -> Iterator[tuple[int, bool]]:
    """Return the rows of a list from a position on, and whether each was seen before it."""
    groups, rows = state.groups, state.rows
    is_ordered = groups.is_ordered(group)
    slot = groups.heads[group * TIERS + (0 if is_ordered else tier)]
    is_seen = bool(within)
    if within:
        last = rows.index.get(within[0], 0)
        if last and rows.group[last] == group and _is_listed(state, last, tier, is_ordered=is_ordered):
            slot, is_seen = rows.after[last], False
    while slot:
        # Of rows that joined at one instant, those that were never sent as rows have no order: they are seen again.
        is_seen = is_seen and _place(state, slot, is_ordered=is_ordered) < within[1:]
        yield slot, is_seen
        slot = rows.after[slot]


def _is_listed(state: State, slot: int, tier: int, *, is_ordered: bool) -> bool:
    rows = state.rows
    return rows.state[slot] != LEASED if is_ordered else (rows.state[slot], rows.tier[slot]) == (WAITING, tier)


def _place(state: State, slot: int, *, is_ordered: bool) -> tuple[int, int]:
    """By what a list is in order."""
    return 0 if is_ordered else state.rows.since_ms[slot], state.rows.order[slot]


def _rows(state: State, sought: Sought, slot_from: int) -> Iterator[Step]:
    """Rows that do not wait. Those that do are passed over by a search in the column of places."""
    rows = state.rows
    places = bytes((RESTING, LEASED, SPENT, MOVING) if sought.place is None else (STATES.index(sought.place),))
    group = 0 if not sought.group else state.groups.numbers.get(sought.group)
    column = bytes(memoryview(rows.state)[slot_from:])
    for found in re.finditer(b"[" + re.escape(places) + b"]", column):
        slot = slot_from + found.start()
        is_sought = sought.tier in {None, rows.tier[slot]} and (sought.group is None or rows.group[slot] == group)
        yield (_ROWS, slot), look_at_row(state, slot) if is_sought else None


def _leased_runs(state: State, sought: Sought, slot_from: int, bit_from: int) -> Iterator[Step]:
    leases = state.leases
    for slot in range(slot_from, len(leases.held)):
        held = leases.held[slot] if leases.until_ms[slot] >= 0 else 0
        if slot == slot_from:
            held = held >> bit_from << bit_from
        if not held:
            if slot % _PASSED == 0:
                yield (_RUNS, slot, LEASE_MESSAGES_MAX), None
            continue
        for bit, lane, number, deliveries in _held(state, slot, held):
            seen = seen_in_run(state, state.lanes[lane], number, "leased", deliveries, leases.id(slot))
            yield (_RUNS, slot, bit), seen if sought.tier in {None, seen.tier} else None


def _held(state: State, slot: int, held: int) -> Iterator[tuple[int, int, int, int]]:
    """Return bit, lane, number and deliveries of what a lease holds in runs."""
    bit = 0
    for part in state.leases.parts.get(slot) or (state.leases.run(slot),):
        if isinstance(part, int):
            bit += 1
            continue
        lane, first, count, deliveries, *_ = part
        for start, length in bit_runs(held >> bit & ((1 << count) - 1)):
            for nth in range(start, start + length):
                yield bit + nth, lane, first + nth, deliveries
        bit += count
