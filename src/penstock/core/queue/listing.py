"""What a queue holds, by place, as columns: for whoever counts everything, and misses nothing.

    lane 0   0 ····· 40 ─────── 90 ──── next        the order: lane, then number
    lane 1   0 ── 7 ──────────────── next
             └ a page begins anywhere, and says which numbers of which lanes it has looked at ┘

A number in a range of a page is live if it is in the page, and settled if it is not: a
page is made at one moment, and says at which. Pages of several moments are joined by
whoever reads them: what arrives meanwhile has higher numbers than its range.

Laws of the file
----------------
1. Messages in runs are expanded by multiplying columns. Only rows are looked at one by one.
2. Nothing here changes the queue. The caller has moved it to the present.

Leases and rows have no order by number. Where there are few, a page looks at all of
them; where there are many, it asks for each of some thousand numbers whether there is
a row, and an index of the leases. So it costs what it returns, and a page may be short,
or empty, and not the last. Only a long stretch of settled numbers has it look at all rows
once, to find where the next live one is. `browsing.py` is for people, who look at the first page.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby, islice
from typing import NamedTuple

from penstock.contract.messages import TIERS
from penstock.core.queue.lanes import Lane
from penstock.core.queue.leases import STRETCH
from penstock.core.queue.message import Run
from penstock.core.queue.rows import LEASED, WAITING
from penstock.core.queue.state import State
from penstock.core.queue.timer_wheel import NEVER

# So many numbers are looked at for a page, and so many rows or leases are few.
_WINDOW = 16_384


class Place(NamedTuple):
    """Where a page begins: a number of a lane."""

    lane: int
    number: int


class Range(NamedTuple):
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
    ranges: list[Range] = field(default_factory=list)
    # Where to go on; None at the end.
    after: Place | None = None

    def __len__(self) -> int:
        return len(self.keys)


START = Place(0, 0)


def list_live(state: State, *, start: Place = START, most: int) -> Listing:
    """Return at most ``most`` messages from a place on, in the order of lane and number."""
    assert most > 0
    listing = Listing()
    for lane in state.lanes[start.lane :]:
        first = min(start.number, lane.next) if lane.tier == start.lane else 0
        left = most - len(listing)
        if not left:
            listing.after = Place(lane.tier, first)
            return listing
        end = _add_lane(listing, state, lane, first, left)
        listing.ranges.append(Range(lane.tier, first, end))
        if end < lane.next:
            listing.after = Place(lane.tier, end)
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
    if not found and end < lane.next:
        # Nothing for a long way: a stretch of settled numbers is passed over at once.
        end = _next_live(state, lane, end)
    return end if left else found[-1].end


def _window_end(state: State, lane: Lane, first: int) -> int:
    """Up to which number a page looks: to the end, unless to look for what is in some thousand numbers is less."""
    if len(state.rows.index) + len(state.leases.held) <= _WINDOW:
        return lane.next
    return min(lane.next, first + _WINDOW)


def _next_live(state: State, lane: Lane, first: int) -> int:
    """The lowest number of a lane from this one on at which anything may be live."""
    tier, lowest = lane.tier, [lane.next]
    lowest += [found.first for shelf in range(tier + 1) for found in islice(_shelved(lane, shelf, first, lane.next), 1)]
    lowest.append(max(first, state.leases.first_leased(tier, first, default=lane.next)))
    lowest.append(min((key for key in state.rows.index if key & 7 == tier and key >= first << 3), default=NEVER) >> 3)
    return min(lowest)


def _sources(state: State, lane: Lane, first: int, end: int) -> list[Iterator[_Found] | list[_Found]]:
    """What is live in a lane in some numbers: each in rising order, and no number in two of them."""
    shelves = [_shelved(lane, tier, first, end) for tier in range(lane.tier + 1) if lane.shelves[tier].count]
    return [*shelves, _leased(state, lane, first, end), _rows(state, lane, first, end)]


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


def _rows(state: State, lane: Lane, first: int, end: int) -> Iterator[_Found]:
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
