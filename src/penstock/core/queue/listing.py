"""Which messages a queue holds: in pages for people, in columns for programs, as numbers for a snapshot.

Nothing here changes the queue. The caller has moved it to the present. How much one page
looks at has a limit, so a page may be short, or empty, and not the last.

`browse`, for people
--------------------
The order is: what waits, the most urgent tier first, in each tier the runs by lane
and number and then the rows by group, in each group from its front; then what rests,
is leased, spent or on its way as rows; then what is leased as runs.

    position     (0, tier, 0, lane, number)                       a run on a shelf
                 (0, tier, 1, group, key, since, order)           a row in the list of its group
                 (0, tier, 1, group)                              all of a group
                 (1, slot)                                        a row that does not wait
                 (2, slot, bit)                                   a message of a lease of runs

The next page begins behind what a position names, if that is still there, and
where it would be if not. Messages that change their place between two pages may be
seen twice or not at all; those that stay are seen once.

`list_live`, for programs that count everything and miss nothing
----------------------------------------------------------------
    lane 0   0 ····· 40 ─────── 90 ──── next        the order: lane, then number
    lane 1   0 ── 7 ──────────────── next
             └ a page begins anywhere, and says which numbers of which lanes it has looked at ┘

A number in a range of a page is live if it is in the page, and settled if it is not: a
page is made at one moment, and says at which. The reader joins pages of several moments:
what arrives meanwhile has higher numbers than its range.

Messages in runs are expanded by multiplying columns. Only rows are looked at one by one.
Leases and rows have no order by number. Where there are few, a page looks at all of
them; where there are many, it asks for each of some thousand numbers whether there is
a row, and an index of the leases. So it costs what it returns. Where it finds nothing in
these numbers, `next_live` looks at all rows once, in parts, for the next one that may be live.

`live_runs`, for snapshots
--------------------------
All numbers that are not settled, in whatever place they are.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import compress, groupby, islice
from operator import and_, itemgetter
from typing import NamedTuple, TypeAlias

from penstock.contract.limits import LEASE_MESSAGES_MAX, PEEK_SCANNED_MAX
from penstock.contract.messages import TIERS
from penstock.core.queue.lanes import Lane
from penstock.core.queue.leases import STRETCH, bit_runs
from penstock.core.queue.message import Run
from penstock.core.queue.queries import MessageView, look_at_row, seen_in_run
from penstock.core.queue.rows import FREE, LEASED, MOVING, RESTING, SPENT, STATES, WAITING, key
from penstock.core.queue.state import State

PLACES = STATES[1:]

Position: TypeAlias = tuple[int, ...]
# Where it was looked, and what was there, if it is sought.
Step: TypeAlias = tuple[Position, MessageView | None]

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


class BrowseFilter(NamedTuple):
    """Messages of one place, tier and group; None for any."""

    place: str | None = None
    tier: int | None = None
    # b"" are those without one.
    group: bytes | None = None


class Browsed(NamedTuple):
    """Some messages, where each was found, and where to go on; None at the end."""

    positions: list[Position]
    seen: list[MessageView]
    after: Position | None


def to_text(position: Position | None) -> str:
    """Return a position as a text that only this module reads; "" for the end.

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
    state: State, sought: BrowseFilter, *, after: Position = (), most: int, steps_max: int = PEEK_SCANNED_MAX
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


def _walk(state: State, sought: BrowseFilter, after: Position) -> Iterator[Step]:
    section = after[0] if after else _WAITING
    if section <= _WAITING and sought.place in {None, "waiting"}:
        yield from _waiting(state, sought, after)
    if section <= _ROWS and sought.place != "waiting":
        yield from _rows_by_slot(state, sought, after[1] + 1 if after and section == _ROWS else 1)
    if sought.place in {None, "leased"} and not sought.group and state.leases.live:
        slot, bit = after[1:] if section == _RUNS else (0, -1)
        yield from _leased_runs(state, sought, slot, min(bit, LEASE_MESSAGES_MAX) + 1)


def _waiting(state: State, sought: BrowseFilter, after: Position) -> Iterator[Step]:
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


def _rows_by_slot(state: State, sought: BrowseFilter, slot_from: int) -> Iterator[Step]:
    """Rows that do not wait. Those that do are passed over by a search in the column of places."""
    rows = state.rows
    places = bytes((RESTING, LEASED, SPENT, MOVING) if sought.place is None else (STATES.index(sought.place),))
    group = 0 if not sought.group else state.groups.numbers.get(sought.group)
    column = bytes(memoryview(rows.state)[slot_from:])
    for found in re.finditer(b"[" + re.escape(places) + b"]", column):
        slot = slot_from + found.start()
        is_sought = sought.tier in {None, rows.tier[slot]} and (sought.group is None or rows.group[slot] == group)
        yield (_ROWS, slot), look_at_row(state, slot) if is_sought else None


def _leased_runs(state: State, sought: BrowseFilter, slot_from: int, bit_from: int) -> Iterator[Step]:
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


# For each lane, what makes 1 of its number and 0 of the others.
_ONLY = tuple(bytes(lane == tier for lane in range(256)) for tier in range(TIERS))
# So many numbers are looked at for a page, and so many rows or leases are few.
_WINDOW = 16_384


class ListCursor(NamedTuple):
    """Where a page begins: a number of a lane."""

    lane: int
    number: int


class NumberRange(NamedTuple):
    """Which numbers of a lane were looked at."""

    lane: int
    first: int
    end: int


class _Found(NamedTuple):
    """Messages that follow each other and are alike; or one that is a row, if it has a slot."""

    first: int
    end: int
    place: int = 0
    deliveries: int = 0
    slot: int = 0


@dataclass(slots=True)
class Listing:
    """Some live messages as columns, one row for each; the codes of places are those of `rows.py`."""

    keys: "array[int]" = field(default_factory=lambda: array("Q"))
    places: "array[int]" = field(default_factory=lambda: array("B"))
    tiers: "array[int]" = field(default_factory=lambda: array("B"))
    # Of the first send, and with the deliveries in earlier queues.
    sent_at_ms: "array[int]" = field(default_factory=lambda: array("q"))
    deliveries: "array[int]" = field(default_factory=lambda: array("I"))
    # Queue, lane and number of the first send: what the id is made of.
    homes: "array[int]" = field(default_factory=lambda: array("I"))
    home_lanes: "array[int]" = field(default_factory=lambda: array("B"))
    home_numbers: "array[int]" = field(default_factory=lambda: array("Q"))
    # By row; those that are not here have none.
    groups: dict[int, bytes] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    # The same messages as runs, and what was looked at.
    runs: list[Run] = field(default_factory=list)
    ranges: list[NumberRange] = field(default_factory=list)
    # Where to go on; None at the end.
    after: ListCursor | None = None

    def __len__(self) -> int:
        return len(self.keys)


START = ListCursor(0, 0)


def list_live(state: State, *, start: ListCursor = START, most: int) -> Listing:
    """Return at most ``most`` messages from a place on, in the order of lane and number."""
    assert most > 0
    listing = Listing()
    for lane in state.lanes[start.lane :]:
        first = min(start.number, lane.next) if lane.tier == start.lane else 0
        left = most - len(listing)
        if not left:
            listing.after = ListCursor(lane.tier, first)
            return listing
        end = _add_lane(listing, state, lane, first, left)
        listing.ranges.append(NumberRange(lane.tier, first, end))
        if end < lane.next:
            listing.after = ListCursor(lane.tier, end)
            return listing
    return listing


def _add_lane(listing: Listing, state: State, lane: Lane, first: int, most: int) -> int:
    """Add messages of a lane from a number on, and return the number before which all were looked at."""
    left, end = most, _window_end(state, lane, first)
    found: list[_Found] = []
    for each in merge(*_sources(state, lane, first, end)):
        if not left:
            break
        # What is left of it comes with the next page.
        taken = each._replace(end=min(each.end, each.first + left))
        found.append(taken)
        left -= taken.end - taken.first
    for is_row, part in groupby(found, key=lambda each: each.slot > 0):
        if is_row:
            _add_rows(listing, state, [each.slot for each in part])
        else:
            for each in part:
                _add_run(listing, state, lane, each)
    return end if left else found[-1].end


def _window_end(state: State, lane: Lane, first: int) -> int:
    """Up to which number a page looks: to the end, unless to look for what is in some thousand numbers is less."""
    if len(state.rows.index) + len(state.leases.held) <= _WINDOW:
        return lane.next
    return min(lane.next, first + _WINDOW)


def next_live(state: State, start: ListCursor) -> Iterator[ListCursor]:
    """Look for the first place from ``start`` on at which anything may be live, in parts; the last yielded is it.

    It passes over a long stretch of settled numbers. The queue may change between two parts, as no number comes back
    to life: one on a shelf or in a lease is counted with the first part, and a row stays in its slot while it lives.
    """
    lane, first = state.lanes[start.lane], start.number
    tier, rows, lowest = lane.tier, state.rows, lane.next
    for shelf in range(tier + 1):
        lowest = min([lowest, *(found.first for found in islice(_shelved(lane, shelf, first, lowest), 1))])
    for leased in state.leases.first_leased(tier, first, default=lowest, most=_WINDOW):
        lowest = leased
        yield ListCursor(tier, lowest)
    for slot in range(0, len(rows.state), _WINDOW):
        part = slice(slot, slot + _WINDOW)
        # As C loops: there may be millions of rows.
        is_here = map(and_, rows.lane[part].tobytes().translate(_ONLY[tier]), map(bool, rows.state[part]))
        lowest = min([lowest, *filter(first.__le__, compress(rows.number[part], is_here))])
        yield ListCursor(tier, lowest)


def _sources(state: State, lane: Lane, first: int, end: int) -> list[Iterator[_Found] | list[_Found]]:
    """What is live in a lane in some numbers: each in rising order, and no number in two of them."""
    shelves = [_shelved(lane, tier, first, end) for tier in range(lane.tier + 1) if lane.shelves[tier].count]
    return [*shelves, _leased(state, lane, first, end), _rows_between(state, lane, first, end)]


def _shelved(lane: Lane, tier: int, first: int, end: int) -> Iterator[_Found]:
    shelf = lane.shelves[tier]
    at = max(shelf.head, bisect_right(shelf.runs, first, lo=shelf.head, key=lambda run: run[0]) - 1)
    for index in range(at, len(shelf.runs)):
        low, upto, deliveries, *_ = shelf.runs[index]
        if low >= end:
            return
        if upto > first:
            yield _Found(max(low, first), min(upto, end), WAITING, deliveries)


def _leased(state: State, lane: Lane, first: int, end: int) -> Iterator[_Found]:
    leases = state.leases
    if not has_many_leases(state):
        yield from sorted(_in_leases(state, lane, range(len(leases.held)), first, end))
        return
    # A stretch of numbers after the other, so that no more leases are looked at than the page has room for.
    for low, slots in leases.slots_of(lane.tier, first, end):
        yield from sorted(_in_leases(state, lane, slots, max(first, low), min(end, low + STRETCH)))


def _in_leases(state: State, lane: Lane, slots: Iterable[int], first: int, end: int) -> Iterator[_Found]:
    leases = state.leases
    for slot in slots:
        held = leases.held[slot]
        if not held or leases.until_ms[slot] < 0 or (slot not in leases.parts and leases.lane[slot] != lane.tier):
            continue
        for part in leases.members(slot, held):
            if not isinstance(part, int) and part[0] == lane.tier and part[1] < end and part[1] + part[2] > first:
                yield _Found(max(part[1], first), min(part[1] + part[2], end), LEASED, part[3])


def _rows_between(state: State, lane: Lane, first: int, end: int) -> Iterator[_Found]:
    lowest, tier, index = first << 3, lane.tier, state.rows.index
    keys: Iterable[int]
    if len(index) <= _WINDOW:
        keys = sorted([key for key in index if key & 7 == tier and lowest <= key < end << 3])
    else:
        keys = (key for key in range(lowest | tier, end << 3, 8) if key in index)
    return (_Found(key >> 3, (key >> 3) + 1, slot=index[key]) for key in keys)


def _add_run(listing: Listing, state: State, lane: Lane, found: _Found) -> None:
    first, end, place, deliveries, _ = found
    count = end - first
    listing.keys.extend(range(first << 3 | lane.tier, end << 3, 8))
    listing.places.frombytes(bytes((place,)) * count)
    listing.tiers.frombytes(_tiers(state, lane, first, end))
    listing.sent_at_ms.extend(_sent_times(lane, first, end))
    listing.deliveries.extend(array("I", (deliveries,)) * count)
    listing.homes.extend(array("I", (state.queue,)) * count)
    listing.home_lanes.frombytes(bytes((lane.tier,)) * count)
    listing.home_numbers.extend(range(first, end))
    _count(listing.runs, lane.tier, first, count)


def _tiers(state: State, lane: Lane, first: int, end: int) -> bytes:
    """The tier that each has come to by its age: lower numbers are older, so it never falls."""
    aging_ms, found, at = state.settings.aging_ms, b"", first
    while at < end:
        tier = lane.tier_at(at, state.now_ms, aging_ms)
        if lane.tier_at(end - 1, state.now_ms, aging_ms) == tier:
            upto = end
        else:
            later = range(at + 1, end)
            upto = (
                at + 1 + bisect_left(later, tier + 1, key=lambda number: lane.tier_at(number, state.now_ms, aging_ms))
            )
        found += bytes((tier,)) * (upto - at)
        at = upto
    return found


def _sent_times(lane: Lane, first: int, end: int) -> Sequence[int]:
    times = lane.sent_times(first, end)
    if isinstance(times, int):
        return array("q", (times,)) * (end - first)
    starts, at_ms = times
    found = array("q")
    for nth, time_ms in enumerate(at_ms):
        low = max(first, starts[nth])
        high = starts[nth + 1] if nth + 1 < len(starts) else end
        found.extend(array("q", (time_ms,)) * (high - low))
    return found


def _add_rows(listing: Listing, state: State, slots: list[int]) -> None:
    rows, names = state.rows, state.groups.names
    for at, slot in enumerate(slots, start=len(listing)):
        lane, number, deliveries, sent_at_ms = (
            rows.lane[slot],
            rows.number[slot],
            rows.deliveries[slot],
            rows.sent_at_ms[slot],
        )
        home, home_lane, home_number = state.queue, lane, number
        origin = rows.origins.get(slot)
        if origin is not None:
            home, home_lane, home_number, sent_at_ms, past = origin
            deliveries += past
        listing.keys.append(number << 3 | lane)
        listing.sent_at_ms.append(sent_at_ms)
        listing.deliveries.append(deliveries)
        listing.homes.append(home)
        listing.home_lanes.append(home_lane)
        listing.home_numbers.append(home_number)
        _count(listing.runs, lane, number, 1)
        if rows.group[slot]:
            listing.groups[at] = names[rows.group[slot]]
        if slot in rows.errors:
            listing.errors[at] = rows.errors[slot]
    listing.places.extend([rows.state[slot] for slot in slots])
    listing.tiers.extend([rows.tier[slot] for slot in slots])


def _count(runs: list[Run], lane: int, first: int, count: int) -> None:
    if runs and runs[-1].lane == lane and runs[-1].first + runs[-1].length == first:
        runs[-1] = Run(lane, runs[-1].first, runs[-1].length + count)
    else:
        runs.append(Run(lane, first, count))


def has_many_leases(state: State) -> bool:
    """Whether a list asks the index of the leases, which may have to be made first."""
    return len(state.leases.held) > _WINDOW


def next_numbers(state: State) -> tuple[int, ...]:
    """For each lane the number that the next message gets: all below were given."""
    return tuple(lane.next for lane in state.lanes)


assert TIERS <= 8, "a key has three bits for its lane"


# A first number and an end.
Stretch = tuple[int, int]


def live_runs(state: State) -> list[list[Stretch]]:
    """Return, for each lane, its live numbers as runs: rising, and none touching the next.

    This is slow: it looks at every run, lease and row of the queue.
    """
    found: list[list[Stretch]] = [[] for _ in range(TIERS)]
    for lane in state.lanes:
        for shelf in lane.shelves:
            found[lane.tier] += [(stretch[0], stretch[1]) for stretch in shelf]
    leases = state.leases
    for slot, held in enumerate(leases.held):
        if held and leases.until_ms[slot] >= 0:
            for part in leases.members(slot, held):
                if not isinstance(part, int):
                    found[part[0]].append((part[1], part[1] + part[2]))
    for tier, numbers in enumerate(_live_rows(state)):
        found[tier] += _runs(numbers)
    return [_join(runs) for runs in found]


def _live_rows(state: State) -> list[list[int]]:
    rows = state.rows
    numbers: list[list[int]] = [[] for _ in range(TIERS)]
    for place, lane, number in zip(rows.state, rows.lane, rows.number, strict=True):
        if place != FREE:
            numbers[lane].append(number)
    return numbers


def _runs(numbers: list[int]) -> Iterable[Stretch]:
    """Numbers as runs.

    >>> list(_runs([7, 3, 4, 5, 9]))
    [(3, 6), (7, 8), (9, 10)]
    """
    numbers.sort()
    # Where numbers follow each other, their distance to their place in the list stays the same.
    for _, run in groupby(enumerate(numbers), key=lambda entry: entry[1] - entry[0]):
        members = list(run)
        yield members[0][1], members[-1][1] + 1


def _join(runs: list[Stretch]) -> list[Stretch]:
    """Sort runs, and make one of those that touch.

    >>> _join([(5, 9), (0, 2), (2, 5)])
    [(0, 9)]
    """
    runs.sort()
    joined: list[Stretch] = []
    for first, end in runs:
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return joined
