"""Which messages a lease takes: tiers by their quotas, then turns of groups, then age.

Inside a tier, messages without a group are taken in the order in which they
joined the tier, whether they are runs or rows. Where groups wait too, they and
the ungrouped take turns, the quiet before the noisy. Nothing here changes the queue.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace, merge
from itertools import chain, islice
from typing import TypeAlias

from penstock.contract.messages import TIERS
from penstock.core.queue.lanes import Shelf
from penstock.core.queue.message import Run, run_of
from penstock.core.queue.message_groups import UNGROUPED
from penstock.core.queue.state import State

# A message to be taken: its lane, its number, and whether it is a row.
Pick: TypeAlias = tuple[int, int, bool]


# Runs to be leased, and the tier that serves each.
Choice: TypeAlias = tuple[tuple[Run, ...], bytes]

_TIER_BYTES = tuple(bytes((tier,)) for tier in range(TIERS))


def choose(state: State, want: int) -> Choice | None:
    """Choose at most ``want`` messages, or None if nothing can be leased now."""
    groups = state.groups
    if groups.is_fifo and groups.numbers:
        return _of_fifo(state, want)
    ready = state.ready
    total = sum(ready)
    if not total:
        return None
    if total in ready:
        return _of_one_tier(state, ready.index(total), min(want, total))
    return _of_tiers(state, want, ready)


def _of_one_tier(state: State, tier: int, quota: int) -> Choice:
    shelf = state.lanes[tier].shelves[tier]
    if shelf.count == state.ready[tier]:
        front = shelf.runs[shelf.head]
        if front[1] - front[0] >= quota:
            return (run_of((tier, front[0], quota)),), _TIER_BYTES[tier]
    runs = _of_tier(state, tier, quota)
    return tuple(runs), _TIER_BYTES[tier] * len(runs)


def _of_fifo(state: State, want: int) -> Choice | None:
    groups = state.groups
    # A tier can give nothing unless messages without a group wait there, or its rotation names an open group.
    active = [
        tier
        for tier in range(TIERS)
        if state.plain[tier] + groups.visible[tier] or (groups.rotations[tier] and groups.next_in(tier, 1))
    ]
    if not active:
        return None
    if len(active) > 1:
        return _of_tiers(state, want, available(state, want))
    runs = _of_tier(state, active[0], want)
    return tuple(runs), _TIER_BYTES[active[0]] * len(runs)


def _of_tiers(state: State, want: int, ready: Sequence[int]) -> Choice:
    runs: list[Run] = []
    tiers: list[int] = []
    lanes, has_rows = state.lanes, bool(state.rows.index)
    for tier, quota in enumerate(state.shares.quotas(want, ready)):
        if not quota:
            continue
        shelf = lanes[tier].shelves[tier]
        if has_rows or shelf.count != ready[tier]:
            found = _of_tier(state, tier, quota)
        else:
            front = shelf.runs[shelf.head]
            if front[1] - front[0] >= quota:
                runs.append(run_of((tier, front[0], quota)))
                tiers.append(tier)
                continue
            found = _from_shelf(shelf, tier, quota)
        runs += found
        tiers += [tier] * len(found)
    return tuple(runs), bytes(tiers)


def available(state: State, want: int) -> Sequence[int]:
    """How many messages each tier could give to a lease of ``want``; at least as many as are there or wanted."""
    groups = state.groups
    found = [0] * TIERS
    for tier in range(TIERS):
        count = state.plain[tier] + groups.visible[tier]
        for group in groups.next_in(tier, want + 1):
            if count >= want:
                break
            if group != UNGROUPED:
                count += len(groups.front(group, want - count))
        found[tier] = count
    return found


def _of_tier(state: State, tier: int, quota: int) -> list[Run]:
    groups = state.groups
    if groups.rotations[tier]:
        served, noisy = groups.quiet_first(tier, quota, state.leased, state.now_ms)
        if noisy:
            return _quiet_first(state, tier, quota, served, noisy)
        if served and UNGROUPED not in served:
            return _join_rows(state, _rows_in_turns(state, tier, quota, served))
        if len(served) > 1:
            return _join(_in_turns(state, tier, quota, served))
    if not groups.heads[tier]:
        shelf = state.lanes[tier].shelves[tier]
        if shelf.count == state.plain[tier]:
            return _from_shelf(shelf, tier, quota)
    elif not state.plain[tier]:
        return _join_rows(state, islice(groups.listed(tier), quota))
    return _join(islice(_ungrouped(state, tier), quota))


def _from_shelf(shelf: Shelf, tier: int, quota: int) -> list[Run]:
    """The healthy way: the next numbers of the tier's own lane."""
    front = shelf.runs[shelf.head]
    if front[1] - front[0] >= quota:
        return [Run(tier, front[0], quota)]
    runs: list[Run] = []
    for stretch in shelf:
        length = min(quota, stretch[1] - stretch[0])
        runs.append(Run(tier, stretch[0], length))
        quota -= length
        if not quota:
            break
    return runs


def _rows(state: State, tier: int, group: int = UNGROUPED) -> Iterator[Pick]:
    rows = state.rows
    return ((rows.lane[slot], rows.number[slot], True) for slot in state.groups.listed(group * TIERS + tier))


def _ungrouped(state: State, tier: int) -> Iterator[Pick]:
    """Runs and rows without a group, in the order in which they joined the tier."""
    sources = [_dated_runs(state, tier, lane) for lane in range(tier, TIERS) if state.lanes[lane].shelves[tier].count]
    sources.append(_dated_rows(state, tier))
    return (pick for _, pick in merge(*sources))


def _dated_runs(state: State, tier: int, lane_tier: int) -> Iterator[tuple[int, Pick]]:
    lane, aging_ms = state.lanes[lane_tier], state.settings.aging_ms
    for stretch in lane.shelves[tier]:
        for number in range(stretch[0], stretch[1]):
            yield lane.since_ms(number, tier, aging_ms), (lane_tier, number, False)


def _dated_rows(state: State, tier: int) -> Iterator[tuple[int, Pick]]:
    rows = state.rows
    for slot in state.groups.listed(tier):
        yield rows.since_ms[slot], (rows.lane[slot], rows.number[slot], True)


def _in_turns(state: State, tier: int, quota: int, served: Sequence[int]) -> Iterator[Pick]:
    """One message of each group in turn; of a FIFO group as much of its front as is wanted."""
    groups, rows = state.groups, state.rows
    if groups.is_fifo:
        yield from _in_fifo_turns(state, tier, quota, served)
        return
    # The first turn takes the front of each, which needs no walk through its list.
    for group in served:
        slot = groups.heads[group * TIERS + tier]
        yield (rows.lane[slot], rows.number[slot], True) if group else next(_ungrouped(state, tier))
    quota -= len(served)
    if not quota:
        return
    turns = deque(islice(_of_group(state, tier, group), 1, None) for group in served)
    while turns and quota > 0:
        turn = turns.popleft()
        pick = next(turn, None)
        if pick is not None:
            yield pick
            quota -= 1
            turns.append(turn)


def _in_fifo_turns(state: State, tier: int, quota: int, served: Sequence[int]) -> Iterator[Pick]:
    groups, rows = state.groups, state.rows
    for group in served:
        if not quota:
            return
        if group == UNGROUPED:
            yield next(_ungrouped(state, tier))
            quota -= 1
            continue
        for slot in groups.front(group, quota):
            yield rows.lane[slot], rows.number[slot], True
            quota -= 1
    if quota and UNGROUPED in served:
        yield from islice(_ungrouped(state, tier), 1, 1 + quota)


def _rows_in_turns(state: State, tier: int, quota: int, served: Sequence[int]) -> list[int]:
    """`_in_turns`, quicker for turns of groups alone: the slots of their rows."""
    groups, after = state.groups, state.rows.after
    heads = groups.heads
    if not groups.is_fifo:
        turn = [heads[group * TIERS + tier] for group in served]
        found = turn
        while len(found) < quota and turn:
            turn = [after[slot] for slot in turn if after[slot]]
            found = found + turn
        return found[:quota]
    found = []
    for group in served:
        found += groups.front(group, quota - len(found))
        if len(found) == quota:
            break
    return found


def _quiet_first(state: State, tier: int, quota: int, quiet: Sequence[int], noisy: Sequence[int]) -> list[Run]:
    """Whatever quiet groups have, in turns; then of noisy ones, those that hold least first."""
    if UNGROUPED in quiet:
        picks = list(_in_turns(state, tier, quota, quiet))
        lanes, numbers = state.rows.lane, state.rows.number
        rest = _levelled(state, tier, quota - len(picks), noisy)
        return _join(chain(picks, ((lanes[slot], numbers[slot], True) for slot in rest)))
    slots = _rows_in_turns(state, tier, quota, quiet)
    return _join_rows(state, slots + _levelled(state, tier, quota - len(slots), noisy))


def _levelled(state: State, tier: int, quota: int, noisy: Sequence[int]) -> list[int]:
    """Rows of noisy groups, each of the group that holds least by then; turns decide where they hold the same."""
    groups, after = state.groups, state.rows.after
    waiting = [
        (groups.tenants.held[group], turn, groups.heads[group * TIERS + tier]) for turn, group in enumerate(noisy)
    ]
    heapify(waiting)
    found: list[int] = []
    while waiting and len(found) < quota:
        held, turn, slot = waiting[0]
        found.append(slot)
        if after[slot]:
            heapreplace(waiting, (held + 1, turn, after[slot]))
        else:
            heappop(waiting)
    return found


def _of_group(state: State, tier: int, group: int) -> Iterator[Pick]:
    return _ungrouped(state, tier) if group == UNGROUPED else _rows(state, tier, group)


def _join(picks: Iterator[Pick]) -> list[Run]:
    """Messages as runs, where one follows the other and both are rows or both are not."""
    runs: list[Run] = []
    lane, first, end, is_row = -1, 0, 0, False
    for pick in picks:
        if pick == (lane, end, is_row):
            end += 1
            continue
        if lane >= 0:
            runs.append(Run(lane, first, end - first))
        lane, first, is_row = pick
        end = first + 1
    if lane >= 0:
        runs.append(Run(lane, first, end - first))
    return runs


def _join_rows(state: State, slots: Iterable[int]) -> list[Run]:
    """`_join`, quicker for rows alone."""
    lanes, numbers = state.rows.lane, state.rows.number
    runs: list[Run] = []
    lane, first, end = -1, 0, 0
    for slot in slots:
        number = numbers[slot]
        if number == end and lanes[slot] == lane:
            end += 1
            continue
        if lane >= 0:
            runs.append(run_of((lane, first, end - first)))
        lane, first, end = lanes[slot], number, number + 1
    if lane >= 0:
        runs.append(run_of((lane, first, end - first)))
    return runs
