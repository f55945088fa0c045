"""What each event does to a queue.

Nothing here decides, and nothing here can fail: an event says what was decided,
and it is carried out on the numbers it names. The one thing that happens beside
it is time, which `Queue.apply` moves to the event's first.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.events import (
    Acked,
    Arrived,
    Buried,
    CaughtUp,
    Escalated,
    Event,
    Expired,
    Extended,
    Leased,
    Moved,
    Moving,
    Opened,
    Purged,
    QueueChanged,
    QueueCreated,
    QueueDeleted,
    Redriven,
    Released,
    Returned,
    Sent,
)
from penstock.core.queue.fairness import Shares
from penstock.core.queue.holding import hold_again
from penstock.core.queue.lanes import Lane, Stretch
from penstock.core.queue.leases import Part, RunPart
from penstock.core.queue.message import Audit, Origin, Run
from penstock.core.queue.message_groups import UNGROUPED
from penstock.core.queue.purging import purge
from penstock.core.queue.retry import is_spent
from penstock.core.queue.rows import MOVING, SPENT, WAITING, Escalation
from penstock.core.queue.sending import add_row, sent
from penstock.core.queue.state import Move, State


def _opened(state: State, event: Opened) -> None:
    # Before time moves: a lease is not to lapse because nobody was there to extend it.
    state.leases.rearm(event.at_ms)
    # Nobody is served yet, so nobody minds how long it takes.
    state.is_behind = False
    state.find_due()
    state.advance(event.at_ms)


def _caught_up(state: State, event: CaughtUp) -> None:
    state.advance(event.from_ms)
    state.catch_up(event.at_ms, event.most)


def _place(state: State, slot: int, visible_at_ms: int, now_ms: int) -> None:
    if visible_at_ms > now_ms:
        state.rest(slot, visible_at_ms)
    else:
        state.rows.since_ms[slot] = now_ms
        state.join(slot)


def _leased(state: State, event: Leased) -> None:
    runs, at_ms, leases = event.runs, event.at_ms, state.leases
    lane, first, count = runs[0]
    is_one = len(runs) == 1
    if not is_one:
        count = sum([run[2] for run in runs])
    until_ms = at_ms + event.lease_ms
    # First, because a slot that is freed on the way would come before it.
    slot = leases.open(event.lease, event.token, count, until_ms, event.lease_ms)
    if until_ms < state.due_ms:  # noqa: PLR1730 - a call of min() costs more than all the rest of the line.
        state.due_ms = until_ms
    state.leased += count
    state.started.add(count, at_ms)
    index = state.rows.index
    if is_one and (not index or first << 3 | lane not in index):
        _lease_one_run(state, slot, runs[0], event.tiers[0])
    else:
        leases.parts[slot] = _lease_parts(state, event)
    if leases.index is not None:
        leases.note(slot)


def _lease_parts(state: State, event: Leased) -> list[Part]:
    runs, tiers = event.runs, event.tiers
    parts: list[Part] = []
    if state.rows.index:
        _lease_runs_and_rows(state, event, parts)
    else:
        _lease_runs(state, runs, tiers, event.at_ms, parts)
    if tiers[0] == tiers[-1]:
        # They are in order, so all are the same.
        state.shares.served_alone(tiers[0], sum([run[2] for run in runs]))
    else:
        state.shares.served_together(tiers, [run[2] for run in runs])
    return parts


def _lease_runs_and_rows(state: State, event: Leased, parts: list[Part]) -> None:
    index, lease = state.rows.index, event.lease
    # Rows of one tier that follow each other are leased together.
    slots: list[int] = []
    slots_tier = bit = 0
    for (lane, first, length), tier in zip(event.runs, event.tiers, strict=True):
        message = first << 3 | lane
        slot = index.get(message)
        if slots and (slot is None or tier != slots_tier):
            state.lease_rows(slots, lease, bit, slots_tier)
            parts += slots
            bit += len(slots)
            slots = []
        if slot is None:
            _lease_runs(state, (Run(lane, first, length),), (tier,), event.at_ms, parts)
            bit += length
            continue
        slots_tier = tier
        slots.append(slot)
        if length > 1:
            slots += [index[each] for each in range(message + 8, message + 8 * length, 8)]
    if slots:
        state.lease_rows(slots, lease, bit, slots_tier)
        parts += slots


def _lease_runs(state: State, runs: Sequence[Run], tiers: Sequence[int], at_ms: int, parts: list[Part]) -> None:
    lanes, rotations, plain, ready = state.lanes, state.groups.rotations, state.plain, state.ready
    for (lane, first, length), tier in zip(runs, tiers, strict=True):
        shelf, end = lanes[lane].shelves[tier], first + length
        front = shelf.runs[shelf.head]
        if front[0] == first and front[1] > end and not front[2] and not front[3]:
            # `take_front`, without a call: most of them go this way.
            front[0] = end
            shelf.count -= length
            plain[tier] -= length
            ready[tier] -= length
            parts.append((lane, first, length, 1, at_ms, tier))
        elif state.take_front(lanes[lane], tier, first, length):
            parts.append((lane, first, length, 1, at_ms, tier))
        else:
            parts += _run_parts(lane, state.take_run(lanes[lane], tier, first, end), tier, at_ms)
        if rotations[tier]:
            state.groups.turn(tier, UNGROUPED)


def _lease_one_run(state: State, slot: int, run: Run, tier: int) -> None:
    """The way of a healthy lease."""
    lane, first, length = run
    state.shares.served_alone(tier, length)
    leases = state.leases
    leases.lane[slot] = lane
    leases.first[slot] = first
    leases.served_tier[slot] = tier
    if state.take_front(state.lanes[lane], tier, first, length):
        leases.deliveries[slot] = 1
    else:
        leased_at_ms = leases.leased_at_ms[slot]
        parts = _run_parts(lane, state.take_run(state.lanes[lane], tier, first, first + length), tier, leased_at_ms)
        leases.deliveries[slot] = parts[0][3]
        if len(parts) > 1:
            leases.parts[slot] = list(parts)
        elif parts[0][4] != leased_at_ms:
            leases.first_leased_ms[slot] = parts[0][4]
    if state.groups.rotations[tier]:
        state.groups.turn(tier, UNGROUPED)


def _run_parts(lane: int, taken: list[Stretch], tier: int, at_ms: int) -> list[RunPart]:
    return [
        (lane, first, end - first, deliveries + 1 if deliveries < 0xFFFF else deliveries, first_ms or at_ms, tier)
        for first, end, deliveries, _, first_ms, _ in taken
    ]


def _acked(state: State, event: Acked) -> None:
    leases = state.leases
    slot = event.lease & 0xFFFF_FFFF
    mask = event.mask
    count = mask.bit_count()
    state.drained.add(count, event.at_ms)
    if count == leases.count[slot] and mask == leases.held[slot] and slot not in leases.parts:
        # The way of a healthy ack: all of a run at once.
        first = leases.first[slot]
        state.lanes[leases.lane[slot]].settle(first, first + count)
        state.leased -= count
        leases.end(slot)
        return
    late = mask & leases.late.get(slot, 0)
    # Before anything is settled: a lease that nothing is left of is forgotten.
    late_members = list(leases.members(slot, late)) if late else []
    if mask != late:
        _settle_held(state, slot, mask & ~late)
    for part in late_members:
        if isinstance(part, int):
            _settle_waiting_row(state, part)
        else:
            settle_waiting(state, Run(part[0], part[1], part[2]))


def _settle_held(state: State, slot: int, mask: int) -> None:
    leases, lanes = state.leases, state.lanes
    count = mask.bit_count()
    is_whole = count == leases.count[slot] and slot in leases.parts
    rows: list[int] = []
    for part in leases.parts[slot] if is_whole else leases.members(slot, mask):
        if isinstance(part, int):
            rows.append(part)
        else:
            lanes[part[0]].settle(part[1], part[1] + part[2])
    if rows:
        state.settle_rows(rows, was_leased=True)
    state.leased -= count
    leases.drop_held(slot, mask)


def settle_waiting(state: State, run: Run) -> None:
    """Settle messages that are in no lease, wherever else they are."""
    lane, first, end = state.lanes[run.lane], run.first, run.first + run.length
    while first < end:
        tier = state.shelf_tier(lane, first)
        if tier >= 0:
            upto = min(end, lane.shelves[tier].stretch_of(first)[1])
            state.take_run(lane, tier, first, upto)
            lane.settle(first, upto)
        else:
            upto = first + 1
            _settle_waiting_row(state, state.slot_of(run.lane, first))
        first = upto


def _settle_waiting_row(state: State, slot: int) -> None:
    state.leave(slot)
    state.settle_rows([slot])


def _released(state: State, event: Released) -> None:
    rows = state.rows
    # Rejected messages have no times, and need none.
    times = event.visible_at_ms or (event.at_ms,) * event.mask.bit_count()
    for slot, visible_at_ms in zip(_unleased(state, event), times, strict=True):
        if event.error:
            rows.errors[slot] = event.error
        if not event.visible_at_ms:
            # Its own limit, so that it stays spent if its burial is put off and the queue's limit is raised meanwhile.
            rows.deliveries_max[slot] = rows.deliveries[slot]
        _put_back(state, slot, visible_at_ms, event.at_ms)


def _returned(state: State, event: Returned) -> None:
    for slot in _unleased(state, event):
        state.rows.deliveries[slot] -= 1
        _put_back(state, slot, event.at_ms, event.at_ms)


def _unleased(state: State, event: Released | Returned) -> Iterator[int]:
    """Make rows of messages that leave their lease; each is put back before the next one leaves."""
    leases = state.leases
    slot = leases.find(event.lease)
    members = list(leases.members(slot, event.mask))
    leased_at_ms = leases.leased_at_ms[slot]
    state.leased -= event.mask.bit_count()
    leases.drop_held(slot, event.mask)
    for part in members:
        if isinstance(part, int):
            state.unhold(part)
            state.rows.lease[part] = 0
            state.link(part)
            yield part
            continue
        lane, first, count, deliveries, first_leased_ms, tier = part
        for number in range(first, first + count):
            row = state.make_row(state.lanes[lane], number, event.at_ms)
            state.rows.deliver(row, deliveries, first_leased_ms, leased_at_ms, tier)
            yield row


def _put_back(state: State, slot: int, visible_at_ms: int, now_ms: int) -> None:
    rows = state.rows
    if is_spent(state.settings, rows.deliveries[slot], rows.deliveries_max[slot]):
        state.spend(slot)
    else:
        _place(state, slot, visible_at_ms, now_ms)
    if state.groups.is_ordered(rows.group[slot]):
        state.groups.refresh(rows.group[slot])


def _extended(state: State, event: Extended) -> None:
    leases = state.leases
    until_ms, slot = event.at_ms + event.lease_ms, leases.find(event.lease)
    late = event.mask & leases.late.get(slot, 0)
    if late:
        hold_again(state, slot, late)
    leases.extend(slot, event.mask, until_ms=until_ms, lease_ms=event.lease_ms)
    leases.wheel.thin(leases.live, leases.held_timers)
    state.soon(until_ms)


def _moved_at_once(state: State, event: Buried | Redriven) -> None:
    if event.into == state.queue:
        rows = zip(event.tiers, event.origins, event.groups, event.errors, strict=True)
        for tier, origin, group, error in rows:
            _arrive(state, tier, origin, group, error, event.at_ms)
        return
    for run in event.runs:
        settle_waiting(state, run)
    state.drained.add(len(event.runs), event.at_ms)


def _arrive(state: State, tier: int, origin: Origin, group: bytes, error: str, now_ms: int) -> None:
    slot = add_row(state, tier, state.lanes[tier].number(1, now_ms), now_ms, group)
    state.rows.origins[slot] = origin
    state.rows.by_origin[origin[:3]] = slot
    if error:
        state.rows.errors[slot] = error
    _place(state, slot, now_ms, now_ms)


def _moving(state: State, event: Moving) -> None:
    state.moves.started = event.sequence
    state.moves.pending = Move(event.into, event.sequence, event.is_redrive, event.runs)
    for run in event.runs:
        slot = state.slot_of(run.lane, run.first)
        if state.rows.state[slot] == WAITING:
            # Where a resting one has the time that it returns to.
            state.rows.visible_at_ms[slot] = 0
        state.leave(slot)
        state.rows.state[slot] = MOVING
        # A FIFO group stays closed behind it: it may come back.
        state.link(slot)
        if state.groups.is_ordered(state.rows.group[slot]):
            state.groups.refresh(state.rows.group[slot])


def _arrived(state: State, event: Arrived) -> None:
    state.moves.arrived[event.source] = event.sequence
    for tier, origin, group, error in zip(event.tiers, event.origins, event.groups, event.errors, strict=True):
        _arrive(state, tier, origin, group, error, event.at_ms)


def _moved(state: State, event: Moved) -> None:
    move, state.moves.pending = state.moves.pending, None
    assert move is not None
    assert move.sequence == event.sequence
    for run in move.runs:
        slot = state.slot_of(run.lane, run.first)
        if event.is_done:
            _settle_waiting_row(state, slot)
        else:
            _come_back(state, slot, event.at_ms, is_redrive=move.is_redrive)
    if event.is_done:
        state.drained.add(len(move.runs), event.at_ms)


def _come_back(state: State, slot: int, now_ms: int, *, is_redrive: bool) -> None:
    rows = state.rows
    if is_redrive:
        _place(state, slot, rows.visible_at_ms[slot], now_ms)
    elif is_spent(state.settings, rows.deliveries[slot], rows.deliveries_max[slot]):
        state.spend(slot)
    else:
        # The limit was raised meanwhile.
        _place(state, slot, now_ms, now_ms)


def _expired(state: State, event: Expired) -> None:
    for run in event.runs:
        settle_waiting(state, run)


def _purged(state: State, _: Purged) -> None:
    purge(state)


def _escalated(state: State, event: Escalated) -> None:
    for run in event.runs:
        for number in range(run.first, run.first + run.length):
            slot = state.slot_of(run.lane, number) or _loosen(state, state.lanes[run.lane], number)
            own = state.rows.escalations.get(slot)
            own_tier = state.rows.tier[slot] if own is None else own.tier
            state.rows.escalations[slot] = Escalation(own_tier, event.until_ms)
            state.retier(slot, event.tier, event.at_ms)
            if event.until_ms:
                state.reverts.add(event.until_ms, slot)
    state.reverts.thin(len(state.rows.escalations), state.held_reverts)
    if event.until_ms:
        state.soon(event.until_ms)
    state.audit.append(Audit(event.at_ms, event.actor, event.reason, event.tier, event.until_ms, event.runs))


def _loosen(state: State, lane: Lane, number: int) -> int:
    """Make a row of a number on a shelf."""
    (_, _, deliveries, lease, first_leased_ms, tier), bit = state.take_one(lane, number)
    slot = state.make_row(lane, number, state.now_ms)
    if lease:
        last_leased_ms = state.leases.leased_at_ms[lease & 0xFFFF_FFFF]
        state.rows.deliver(slot, deliveries, first_leased_ms, last_leased_ms, tier)
        state.rows.lease[slot], state.rows.bit[slot] = lease, bit
    state.join(slot)
    return slot


def _created(state: State, event: QueueCreated) -> None:
    state.created_at_ms = event.at_ms
    _changed(state, event)


def _changed(state: State, event: QueueChanged | QueueCreated) -> None:
    before = state.settings
    state.age_runs(event.at_ms)
    for lane in state.lanes:
        lane.keep_aged(event.at_ms, before.aging_ms)
    settings = state.settings = QueueSettings.from_json(event.settings)
    state.groups.follow(settings)
    if (before.weights, before.is_strict) != (settings.weights, settings.is_strict):
        state.shares = Shares(settings.weights, is_strict=settings.is_strict)
    if before.aging_ms != settings.aging_ms:
        state.restart_aging()
    for slot in list(state.spent):
        if not is_spent(settings, state.rows.deliveries[slot], state.rows.deliveries_max[slot]):
            assert state.rows.state[slot] == SPENT
            del state.spent[slot]
            _place(state, slot, event.at_ms, event.at_ms)
    state.find_due()


def _nothing(_: State, __: QueueDeleted) -> None:
    """The shard's business, not the queue's."""


CHANGES: dict[type[Event], Callable[[State, Any], None]] = {
    Opened: _opened,
    CaughtUp: _caught_up,
    QueueCreated: _created,
    QueueChanged: _changed,
    QueueDeleted: _nothing,
    Sent: sent,
    Leased: _leased,
    Acked: _acked,
    Released: _released,
    Returned: _returned,
    Extended: _extended,
    Buried: _moved_at_once,
    Redriven: _moved_at_once,
    Moving: _moving,
    Arrived: _arrived,
    Moved: _moved,
    Expired: _expired,
    Purged: _purged,
    Escalated: _escalated,
}
