"""What each event does to a queue.

Nothing here decides, and nothing here can fail: an event says what was decided,
and it is carried out on the numbers it names. The one thing that happens beside
it is time, which `Queue.apply` moves to the event's first.

A send: new messages become runs, or rows if they have anything of their own. A batch
whose messages are all rows and all wait is made in columns, a loop for each step. Other
messages are made one by one.

A late extension holds messages again whose lease has lapsed and that wait. What became a
row only when its lease lapsed takes the place of its number in the lease.

A purge puts new columns in the place of the old ones: that takes as long for a million
rows as for one, and leaves the old ones to the history (`settlements.Everything`). What is
on its way to another queue, a hundred messages at most, is copied into the new ones.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

from penstock.contract.messages import TIERS
from penstock.contract.queue_settings import DedupScope, QueueSettings
from penstock.core.queue.events import (
    Acked,
    Arrived,
    Buried,
    Cancelled,
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
    Tally,
)
from penstock.core.queue.fairness import Shares
from penstock.core.queue.lanes import Lane, Stretch
from penstock.core.queue.leases import Leases, Part, RunPart
from penstock.core.queue.message import Audit, Origin, Run, keys_of
from penstock.core.queue.message_groups import UNGROUPED, MessageGroups
from penstock.core.queue.retry import is_spent
from penstock.core.queue.rows import LEASED, MOVING, SPENT, WAITING, Escalation, Rows
from penstock.core.queue.state import Move, State
from penstock.core.queue.timer_wheel import Wheel


def _opened(state: State, event: Opened) -> None:
    # Before time moves: a lease must not lapse because no server was there to extend it.
    state.leases.rearm(event.at_ms)
    state.find_due()
    # A queue that was put behind its time stays so, and goes on catching up.
    state.advance(event.at_ms)
    state.tally = Tally()


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
        _hold_again(state, slot, late)
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
    _count_move(state, len(event.runs), is_redrive=isinstance(event, Redriven))


def _count_move(state: State, count: int, *, is_redrive: bool) -> None:
    if is_redrive:
        state.tally.redriven += count
    else:
        state.tally.buried += count


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
        _count_move(state, len(move.runs), is_redrive=move.is_redrive)


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
        state.tally.expired += run.length


def _cancelled(state: State, event: Cancelled) -> None:
    for run in event.runs:
        settle_waiting(state, run)


def _escalated(state: State, event: Escalated) -> None:
    for run in event.runs:
        state.tally.escalated += run.length
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


def _sent(state: State, event: Sent) -> None:
    """Number the messages and let them wait, or rest."""
    if (
        event.groups is None
        and event.dedup_ids is None
        and event.visible_at_ms is None
        and event.deliveries_max is None
        and event.sender is None
    ):
        state.add_runs(event.tiers, event.at_ms)
    else:
        _send_more(state, event)


def _send_more(state: State, event: Sent) -> None:
    has_live_ids = event.dedup_ids is not None and state.settings.dedup_scope is DedupScope.LIVE
    has_names = event.sender is not None or (event.dedup_ids is not None and not has_live_ids)
    firsts = [lane.next for lane in state.lanes] if has_names else []
    if event.groups is None and event.visible_at_ms is None and event.deliveries_max is None and not has_live_ids:
        state.add_runs(event.tiers, event.at_ms)
    else:
        _send_rows(state, event, has_live_ids=has_live_ids)
    if event.dedup_ids is not None and not has_live_ids:
        _remember_ids(state, event, event.dedup_ids, firsts)
    if event.sender is not None:
        keys = keys_of(event.tiers, firsts)
        for draft, message in event.repeats:
            keys.insert(draft, message)
        state.senders.remember(event.sender, keys, event.at_ms)
        state.soon(state.senders.next_ms())


def _send_rows(state: State, event: Sent, *, has_live_ids: bool) -> None:
    tiers, groups, now_ms, lanes = event.tiers, event.groups, event.at_ms, state.lanes
    ids = event.dedup_ids if has_live_ids else None
    count = len(tiers)
    keys: Sequence[int]
    if tiers and tiers.count(tiers[0]) == count:
        first = lanes[tiers[0]].number(count, now_ms) << 3 | tiers[0]
        keys = range(first, first + 8 * count, 8)
    else:
        keys = keys_of(tiers, [lane.next for lane in lanes])
        for tier in set(tiers):
            lanes[tier].number(tiers.count(tier), now_ms)
    is_even = event.visible_at_ms is None and event.deliveries_max is None
    if is_even and (groups is None or b"" not in groups) and (ids is None or b"" not in ids):
        _send_even_rows(state, keys, event, ids)
    else:
        _send_mixed_rows(state, keys, event, ids)


def _send_even_rows(state: State, keys: Sequence[int], event: Sent, ids: tuple[bytes, ...] | None) -> None:
    """All are rows, and wait at once: the usual batch of groups or ids."""
    rows, tiers, groups = state.rows, event.tiers, state.groups
    slots = rows.add_all(keys, event.at_ms, state.order + 1)
    state.order += len(slots)
    if ids is not None:
        rows.dedup_ids.update(zip(slots, ids, strict=True))
        state.dedup.live.update(zip(ids, keys, strict=True))
    different = set(tiers)
    for tier in different:
        state.ready[tier] += tiers.count(tier)
    if event.groups is None:
        groups.append_all(slots, tiers)
    elif groups.is_fifo:
        groups.append_in_order(slots, tiers, event.groups)
    else:
        groups.append_grouped(slots, tiers, event.groups)
    if any(map(state.settings.aging_ms.__getitem__, different)):
        for slot in slots:
            state.time_aging(slot)


def _send_mixed_rows(state: State, keys: Sequence[int], event: Sent, ids: tuple[bytes, ...] | None) -> None:
    columns = zip(
        keys,
        event.groups or repeat(b""),
        ids or repeat(b""),
        event.visible_at_ms or repeat(0),
        event.deliveries_max or repeat(0),
        strict=False,
    )
    rows, now_ms = state.rows, event.at_ms
    for key, group, dedup_id, visible_at_ms, deliveries_max in columns:
        tier, number = key & 7, key >> 3
        if not (group or dedup_id or deliveries_max or visible_at_ms > now_ms):
            state.add_numbered(state.lanes[tier], number, number + 1, now_ms)
            continue
        slot = _add_row(state, tier, number, now_ms, group)
        if deliveries_max:
            rows.deliveries_max[slot] = deliveries_max
        if dedup_id:
            rows.dedup_ids[slot] = dedup_id
            state.dedup.live[dedup_id] = key
        if visible_at_ms > now_ms:
            state.rest(slot, visible_at_ms)
        else:
            state.join(slot)


def _add_row(state: State, tier: int, number: int, now_ms: int, group: bytes) -> int:
    """Make a row that is in no place yet; in a FIFO group it is linked already."""
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


def _remember_ids(state: State, event: Sent, dedup_ids: tuple[bytes, ...], firsts: list[int]) -> None:
    until_ms = event.at_ms + state.settings.dedup_window_ms
    for name, message in zip(dedup_ids, keys_of(event.tiers, firsts), strict=True):
        if name:
            state.dedup.remember(name, message, until_ms)
    state.soon(state.dedup.next_ms())


def _hold_again(state: State, slot: int, mask: int) -> None:
    """Late messages, which wait, are held again by the lease they came from."""
    leases = state.leases
    if not leases.held[slot]:
        leases.live += 1
    # First: a lease that neither holds anything nor is late with anything is forgotten.
    leases.held[slot] |= mask
    state.leased += mask.bit_count()
    for _, (lane, number, row) in list(leases.each(slot, mask)):
        at = row or state.slot_of(lane, number)
        if at:
            if not row:
                leases.loosen(slot, lane, number, at)
            _hold_row(state, at)
        else:
            state.take_run(state.lanes[lane], state.shelf_tier(state.lanes[lane], number), number, number + 1)


def _hold_row(state: State, slot: int) -> None:
    rows = state.rows
    lease, bit = rows.lease[slot], rows.bit[slot]
    if rows.group[slot]:
        state.groups.hold(slot)
    state.leave(slot)
    rows.state[slot], rows.lease[slot], rows.bit[slot] = LEASED, lease, bit


def _purged(state: State, _: Purged) -> None:
    state.tally.purged += state.live - state.moves.count
    before, names = state.rows, state.groups.names
    for lane in state.lanes:
        lane.clear()
        lane.live = 0
    state.rows = Rows()
    state.groups = MessageGroups(state.rows, state.plain, state.settings)
    # Slots and ids of leases start again: the token tells an old receipt from a new one.
    state.leases = Leases()
    state.delays, state.aging, state.reverts = Wheel(), Wheel(), Wheel()
    state.spent = {}
    state.dedup.live = {}
    state.ready[:] = [0] * TIERS
    state.plain[:] = [0] * TIERS
    state.leased = state.resting = 0
    for run in () if state.moves.pending is None else state.moves.pending.runs:
        _carry_over(state, run, before, names)
    state.find_due()


def _carry_over(state: State, run: Run, before: Rows, names: Sequence[bytes]) -> None:
    """Have a message that is on its way to another queue as a row of the new columns."""
    rows, groups = state.rows, state.groups
    message = run.first << 3 | run.lane
    was = before.index[message]
    slot = rows.adopt(before, was)
    state.lanes[run.lane].live += 1
    if slot in rows.dedup_ids:
        state.dedup.live[rows.dedup_ids[slot]] = message
    if slot in rows.escalations and rows.escalations[slot].until_ms:
        state.reverts.add(rows.escalations[slot].until_ms, slot)
    if before.group[was]:
        group = rows.group[slot] = groups.number(names[before.group[was]])
        groups.members[group] += 1
        state.link(slot)
        if groups.is_ordered(group):
            groups.refresh(group)


CHANGES: dict[type[Event], Callable[[State, Any], None]] = {
    Opened: _opened,
    CaughtUp: _caught_up,
    QueueCreated: _created,
    QueueChanged: _changed,
    QueueDeleted: _nothing,
    Sent: _sent,
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
    Cancelled: _cancelled,
    Purged: _purged,
    Escalated: _escalated,
}
