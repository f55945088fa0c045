"""Which numbers of a queue are live: not settled, in whatever place they are."""

from collections.abc import Iterable
from itertools import groupby

from penstock.contract.messages import TIERS
from penstock.core.queue.rows import FREE
from penstock.core.queue.state import State

# A first number and an end.
Stretch = tuple[int, int]


def live_runs(state: State) -> list[list[Stretch]]:
    """Return, for each lane, its live numbers as runs: rising, and none touching the next.

    For whoever has time: it looks at every run, lease and row of the queue.
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
    for tier, numbers in enumerate(_rows(state)):
        found[tier] += _runs(numbers)
    return [_join(runs) for runs in found]


def _rows(state: State) -> list[list[int]]:
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
