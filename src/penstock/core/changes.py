"""What each event does to a queue.

Nothing here decides, and nothing here can fail: an event says what was decided,
and it is carried out on the numbers it names. The one thing that happens beside
it is time, which `apply` moves to the event's first.
"""

from collections.abc import Callable
from itertools import repeat
from typing import Any

from penstock.core.events import (
    Acked,
    Arrived,
    Buried,
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
    Sent,
)
from penstock.core.fairness import Shares
from penstock.core.grouping import UNGROUPED
from penstock.core.lanes import Lane, Stretch
from penstock.core.leases import Part, RunPart
from penstock.core.message import Audit, Origin, Run
from penstock.core.moves import Move
from penstock.core.purging import purge
from penstock.core.retry import is_spent
from penstock.core.rows import MOVING, SPENT, WAITING, Escalation
from penstock.core.settings import TIERS, DedupScope, QueueSettings
from penstock.core.state import State


def apply(state: State, event: Event) -> None:
    """Move the queue to the event's time, then do what the event says."""
    if type(event) is Opened:
        # Before time moves: a lease is not to lapse because nobody was there to extend it.
        state.leases.rearm(event.at_ms)
        state.find_due()
    if event.at_ms >= state.due_ms or event.at_ms > state.now_ms:
        state.advance(event.at_ms)
    _CHANGES[type(event)](state, event)


def _sent(state: State, event: Sent) -> None:
    has_rows = event.groups is not None or event.visible_at_ms is not None or event.deliveries_max is not None
    if has_rows or event.dedup_ids is not None or event.sender is not None:
        _send_more(state, event)
    else:
        _send_runs(state, event)


def _send_more(state: State, event: Sent) -> None:
    firsts = [lane.next for lane in state.lanes] if event.sender or event.dedup_ids else []
    has_live_ids = event.dedup_ids is not None and state.settings.dedup_scope is DedupScope.LIVE
    if event.groups is None and event.visible_at_ms is None and event.deliveries_max is None and not has_live_ids:
        _send_runs(state, event)
    else:
        _send_rows(state, event, has_live_ids=has_live_ids)
    if event.dedup_ids is not None and not has_live_ids:
        _remember_ids(state, event, event.dedup_ids, firsts)
    if event.sender is not None:
        keys = state.keys_of(event.tiers, firsts)
        for draft, message in event.repeats:
            keys.insert(draft, message)
        state.senders.remember(event.sender, keys, event.at_ms)
        state.soon(state.senders.next_ms())


def _send_runs(state: State, event: Sent) -> None:
    tiers = event.tiers
    left = len(tiers)
    tier = tiers[0] if tiers else 0
    # The tier of the first message is that of all, most of the time.
    while left:
        count = tiers.count(tier)
        if count:
            state.add_run(tier, count, event.at_ms)
            left -= count
        tier = (tier + 1) % TIERS


def _send_rows(state: State, event: Sent, *, has_live_ids: bool) -> None:
    numbers = [0] * TIERS
    for tier in set(event.tiers):
        numbers[tier] = state.lanes[tier].number(event.tiers.count(tier), event.at_ms)
    columns = zip(
        event.tiers,
        event.groups or repeat(b""),
        (event.dedup_ids if has_live_ids else None) or repeat(b""),
        event.visible_at_ms or repeat(0),
        event.deliveries_max or repeat(0),
        strict=False,
    )
    rows, now_ms = state.rows, event.at_ms
    for tier, group, dedup_id, visible_at_ms, deliveries_max in columns:
        number = numbers[tier]
        numbers[tier] = number + 1
        if not (group or dedup_id or deliveries_max or visible_at_ms > now_ms):
            state.add_numbered(state.lanes[tier], number, number + 1, now_ms)
            continue
        slot = _add_row(state, tier, number, now_ms, group)
        if deliveries_max:
            rows.deliveries_max[slot] = deliveries_max
        if dedup_id:
            rows.dedup_ids[slot] = dedup_id
            state.dedup.live[dedup_id] = number << 3 | tier
        if visible_at_ms > now_ms:
            state.rest(slot, visible_at_ms)
        else:
            state.join(slot)


def _add_row(state: State, tier: int, number: int, now_ms: int, group: bytes) -> int:
    state.order += 1
    slot = state.rows.add(tier, number, now_ms, state.order)
    if group:
        groups = state.groups
        number = groups.numbers.get(group) or groups.number(group)
        state.rows.group[slot] = number
        groups.members[number] += 1
        if groups.is_fifo:
            # The newest of all, so its place is the last.
            groups.append(number * TIERS, slot)
    return slot


def _place(state: State, slot: int, visible_at_ms: int, now_ms: int) -> None:
    if visible_at_ms > now_ms:
        state.rest(slot, visible_at_ms)
    else:
        state.rows.since_ms[slot] = now_ms
        state.join(slot)


def _remember_ids(state: State, event: Sent, dedup_ids: tuple[bytes, ...], firsts: list[int]) -> None:
    until_ms = event.at_ms + state.settings.dedup_window_ms
    for name, message in zip(dedup_ids, state.keys_of(event.tiers, firsts), strict=True):
        if name:
            state.dedup.remember(name, message, until_ms)
    state.soon(state.dedup.next_ms())


def _leased(state: State, event: Leased) -> None:
    runs, leases = event.runs, state.leases
    count = runs[0].length if len(runs) == 1 else sum([run.length for run in runs])
    until_ms = event.at_ms + event.lease_ms
    # First, because a slot that is freed on the way would come before it.
    slot = leases.open(event.lease, event.token, count, until_ms, event.lease_ms)
    if until_ms < state.due_ms:  # noqa: PLR1730 - a call of min() costs more than all the rest of the line.
        state.due_ms = until_ms
    state.leased += count
    state.started.add(count, event.at_ms)
    if len(runs) == 1:
        run = runs[0]
        if not state.rows.index or not state.slot_of(run.lane, run.first):
            _lease_one_run(state, slot, run, event.tiers[0])
            return
    leases.parts[slot] = _lease_parts(state, event)


def _lease_parts(state: State, event: Leased) -> list[Part]:
    index, groups = state.rows.index, state.groups
    served = [0] * TIERS
    parts: list[Part] = []
    bit = 0
    for (lane, first, length), tier in zip(event.runs, event.tiers, strict=True):
        served[tier] += length
        if index and first << 3 | lane in index:
            for message in range(first << 3 | lane, (first + length) << 3, 8):
                slot = index[message]
                state.lease_row(slot, event.lease, bit, tier)
                parts.append(slot)
                bit += 1
            continue
        bit += length
        if state.take_front(state.lanes[lane], tier, first, length):
            parts.append((lane, first, length, 1, event.at_ms, tier))
        else:
            parts += _run_parts(lane, state.take_run(state.lanes[lane], tier, first, first + length), tier, event.at_ms)
        if groups.rotations[tier]:
            groups.turn(tier, UNGROUPED)
    state.shares.served_together(served)
    return parts


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
    if mask == leases.held[slot] and count == leases.count[slot] and slot not in leases.parts:
        # The way of a healthy ack: all of a run at once.
        first = leases.first[slot]
        state.lanes[leases.lane[slot]].settle(first, first + count)
        state.leased -= count
        leases.drop_held(slot, mask)
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
    is_whole = mask.bit_count() == leases.count[slot] and slot in leases.parts
    for part in leases.parts[slot] if is_whole else leases.members(slot, mask):
        if isinstance(part, int):
            state.settle_row(part, was_leased=True)
        else:
            first = part[1]
            lanes[part[0]].settle(first, first + part[2])
    state.leased -= mask.bit_count()
    state.leases.drop_held(slot, mask)


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
    state.settle_row(slot)


def _released(state: State, event: Released) -> None:
    leases = state.leases
    slot = leases.find(event.lease)
    members = list(leases.members(slot, event.mask))
    leased_at_ms = leases.leased_at_ms[slot]
    state.leased -= event.mask.bit_count()
    leases.drop_held(slot, event.mask)
    times = iter(event.visible_at_ms)
    for part in members:
        if isinstance(part, int):
            state.unhold(part)
            state.rows.lease[part] = 0
            state.link(part)
            _return_row(state, part, next(times), event)
            continue
        lane, first, count, deliveries, first_leased_ms, tier = part
        for number in range(first, first + count):
            row = state.make_row(state.lanes[lane], number, event.at_ms)
            state.rows.deliver(row, deliveries, first_leased_ms, leased_at_ms, tier)
            _return_row(state, row, next(times), event)


def _return_row(state: State, slot: int, visible_at_ms: int, event: Released) -> None:
    rows = state.rows
    if event.error:
        rows.errors[slot] = event.error
    if is_spent(state.settings, rows.deliveries[slot], rows.deliveries_max[slot]):
        state.spend(slot)
    else:
        _place(state, slot, visible_at_ms, event.at_ms)
    if state.groups.is_ordered(rows.group[slot]):
        state.groups.refresh(rows.group[slot])


def _extended(state: State, event: Extended) -> None:
    leases = state.leases
    until_ms = event.at_ms + event.lease_ms
    leases.extend(leases.find(event.lease), event.mask, until_ms=until_ms, lease_ms=event.lease_ms)
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
    slot = _add_row(state, tier, state.lanes[tier].number(1, now_ms), now_ms, group)
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
    # Given when the queue is created; no change touches it.
    state.groups.is_fifo = settings.is_fifo
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


def _nothing(_: State, __: Opened | QueueDeleted) -> None:
    """The shard's business, not the queue's."""


_CHANGES: dict[type[Event], Callable[[State, Any], None]] = {
    Opened: _nothing,
    QueueCreated: _created,
    QueueChanged: _changed,
    QueueDeleted: _nothing,
    Sent: _sent,
    Leased: _leased,
    Acked: _acked,
    Released: _released,
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
