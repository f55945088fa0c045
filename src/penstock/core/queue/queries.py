"""What can be asked of a queue: counts, ages, one message, the dead letters, and when to look again.

Pages of messages: `queries.py`.

The last part says when messages may become leasable: by which events, and when by the
clock alone. Long polls wait for that. Both answers may be too generous and never too
mean: to look in vain costs little, to miss a message breaks a promise.

    event                               who may have something to lease
    ──────────────────────────────────  ──────────────────────────────────────────────
    sent, released, arrived, moved      its queue
    buried, redriven                    the queue they went to; a FIFO queue they left
    acked, expired                      a FIFO queue: the next of the group
    extended                            no queue; but if the lease ends sooner now, its queue
    queue made, changed, deleted        its queue: resumed, or gone
    caught up                           its queue: something has woken or lapsed

A lease wakes no queue, though it will lapse: the leasing side knows until when.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, count, islice
from typing import Any, NamedTuple

from penstock.contract.messages import TIERS
from penstock.core.queue.events import (
    Acked,
    Arrived,
    Buried,
    Cancelled,
    CaughtUp,
    Event,
    Expired,
    Extended,
    Leased,
    Moved,
    QueueChanged,
    QueueCreated,
    QueueDeleted,
    Redriven,
    Released,
    Returned,
    Sent,
)
from penstock.core.queue.lanes import Lane
from penstock.core.queue.message import Origin
from penstock.core.queue.moves import columns
from penstock.core.queue.rows import LEASED, STATES, key
from penstock.core.queue.state import State
from penstock.core.queue.timer_wheel import NEVER

# Looking for the oldest message, no more groups than this are asked.
_GROUPS_ASKED_MAX = 10_000
# Looking for the oldest lease, no more than these: about half a millisecond.
_LEASES_ASKED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many messages a queue holds; a tuple has one number for each tier."""

    ready: tuple[int, ...]
    leased: int
    resting: int
    # Deliveries spent, and not buried yet: the dead-letter queue is full, or about to be asked.
    spent: int
    # On their way to a queue of another shard.
    moving: int = 0

    @property
    def live(self) -> int:
        return sum(self.ready) + self.leased + self.resting + self.spent + self.moving


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """One live message, as it is now."""

    message: int
    # waiting, resting, leased, spent or moving
    place: str
    tier: int
    sent_tier: int
    sent_at_ms: int
    # When it joined its tier.
    since_ms: int
    deliveries: int
    visible_at_ms: int = 0
    group: bytes = b""
    # The lease that holds it; 0 if none does.
    lease: int = 0
    error: str = ""
    origin: Origin | None = None
    is_escalated: bool = False


# Not frozen, as events are not.
@dataclass(slots=True)
class Contents:
    """What a lease holds, as columns with one row for each message."""

    messages: Sequence[int]
    deliveries: Sequence[int]
    sent_at_ms: Sequence[int]
    tiers: bytes
    groups: Sequence[bytes] | None
    # None if none was leased before.
    first_leased_at_ms: Sequence[int] | None = None


class Noisy(NamedTuple):
    """Groups that take more than their share, how many of their messages wait, and how many are leased."""

    groups: int
    ready: int
    leased: int


class PendingMove(NamedTuple):
    """A move that has begun, as columns with one row for each message."""

    into: int
    sequence: int
    is_redrive: bool
    # Their keys here.
    messages: tuple[int, ...]
    tiers: bytes
    origins: tuple[Origin, ...]
    groups: tuple[bytes, ...]
    errors: tuple[str, ...]


def counts(state: State) -> QueueCounts:
    return QueueCounts(tuple(state.ready), state.leased, state.resting, len(state.spent), state.moves.count)


def leased_sent_at_ms(state: State) -> int | None:
    """When a message of the oldest lease was sent; None if nothing is leased.

    Of very many leases the first are looked at: places in them are used again, so any of them may be old.
    """
    leases = state.leases
    looked = leases.held[:_LEASES_ASKED_MAX]
    # As C loops.
    slot = min(compress(count(), looked), key=leases.leased_at_ms.__getitem__, default=None)
    if slot is None:
        return None
    for part in leases.members(slot, leases.held[slot]):
        if isinstance(part, int):
            return state.rows.sent_at_ms[part]
        return state.lanes[part[0]].sent_at_ms(part[1])
    return None


def spent_since_ms(state: State) -> int | None:
    """When the first of the messages that are to be buried had spent its deliveries."""
    first = next(iter(state.spent), None)
    return None if first is None else state.rows.since_ms[first]


def noisy(state: State) -> Noisy:
    """Which part of a queue its noisy groups are; of very many groups, only the first are looked at."""
    tenants, groups = state.groups.tenants, state.groups
    if groups.is_fifo or not groups.numbers:
        return Noisy(0, 0, 0)
    asked = islice(groups.numbers.values(), _GROUPS_ASKED_MAX)
    found = [group for group in asked if tenants.is_noisy(group, state.leased, state.now_ms)]
    ready = sum(sum(groups.visible[group * TIERS : (group + 1) * TIERS]) for group in found)
    return Noisy(len(found), ready, sum(tenants.held[group] for group in found))


def oldest_sent_at_ms(state: State) -> list[int | None]:
    """When the message at the front of each tier was sent: the oldest, unless retries or aging stand before it."""
    found: list[int | None] = [None] * TIERS
    for tier in range(TIERS):
        if not state.ready[tier]:
            continue
        times = [
            lane.sent_at_ms(next(iter(lane.shelves[tier]))[0])
            for lane in state.lanes[tier:]
            if lane.shelves[tier].count
        ]
        times += [state.rows.sent_at_ms[slot] for slot in _heads(state, tier)]
        found[tier] = min(times, default=None)
    return found


def _heads(state: State, tier: int) -> Iterator[int]:
    groups = state.groups
    if groups.heads[tier]:
        yield groups.heads[tier]
    for group in islice(groups.numbers.values(), _GROUPS_ASKED_MAX):
        head = groups.heads[group * TIERS + (0 if groups.is_fifo else tier)]
        if head and groups.visible[group * TIERS + tier]:
            yield head


def bounds(state: State, now_ms: int) -> list[tuple[int, int | None]]:
    """For each tier, the bound on what a message sent now may wait: in leased messages, and in ms at this rate.

    The bound holds for messages without a group, as long as the queue is not paused.
    """
    leases = state.shares.bounds(state.ready)
    rate = state.started.per_second(now_ms)
    if not rate:
        return [(count, None) for count in leases]
    return [(count, int(count / rate * 1_000)) for count in leases]


def contents(state: State, event: Leased) -> Contents:
    """What was handed out by a lease that has just been applied."""
    slot = event.lease & 0xFFFF_FFFF
    leases = state.leases
    if slot not in leases.parts:
        # The way of a healthy lease: one run.
        ((lane, first, count),) = event.runs
        messages = range(first << 3 | lane, (first + count) << 3, 8)
        sent = _sent_times(state.lanes[lane], first, count)
        deliveries = leases.deliveries[slot]
        firsts = [leases.run(slot)[4]] * count if deliveries > 1 else None
        return Contents(messages, [deliveries] * count, sent, event.tiers * count, None, firsts)
    return _contents_of_parts(state, event, slot)


def _contents_of_parts(state: State, event: Leased, slot: int) -> Contents:
    messages: list[int] = []
    deliveries: list[int] = []
    sent_at_ms: list[int] = []
    groups: list[bytes] = []
    firsts: list[int] = []
    rows = state.rows
    for part in state.leases.members(slot, state.leases.held[slot]):
        if isinstance(part, int):
            messages.append(key(rows.lane[part], rows.number[part]))
            deliveries.append(rows.deliveries[part])
            sent_at_ms.append(rows.sent_at_ms[part])
            groups.append(state.groups.names[rows.group[part]])
            firsts.append(rows.first_leased_ms[part])
        else:
            lane, first, count, delivered, first_leased_ms = part[:5]
            messages += range(first << 3 | lane, (first + count) << 3, 8)
            deliveries += [delivered] * count
            sent_at_ms += _sent_times(state.lanes[lane], first, count)
            groups += [b""] * count
            firsts += [first_leased_ms] * count
    tiers = b"".join(bytes((tier,)) * run.length for tier, run in zip(event.tiers, event.runs, strict=True))
    told = firsts if max(deliveries) > 1 else None
    return Contents(messages, deliveries, sent_at_ms, tiers, groups if any(groups) else None, told)


def _sent_times(lane: Lane, first: int, count: int) -> list[int]:
    at_ms = lane.sent_at_ms(first)
    if lane.sent_at_ms(first + count - 1) == at_ms:
        return [at_ms] * count
    return [lane.sent_at_ms(number) for number in range(first, first + count)]


def look(state: State, message: int) -> MessageView | None:
    """One message by its key, or None if it is settled or was never there."""
    lane_tier, number = message & 7, message >> 3
    slot = state.slot_of(lane_tier, number)
    if slot:
        return look_at_row(state, slot)
    if lane_tier >= TIERS or not state.lanes[lane_tier].may_have(number):
        return None
    lane = state.lanes[lane_tier]
    place, deliveries, lease = _place_of_run(state, lane, number)
    return seen_in_run(state, lane, number, place, deliveries, lease) if place else None


def seen_in_run(state: State, lane: Lane, number: int, place: str, deliveries: int, lease: int = 0) -> MessageView:
    """One message of a run, of which it is known where it is."""
    aging_ms = state.settings.aging_ms
    tier = lane.tier_at(number, state.now_ms, aging_ms)
    return MessageView(
        message=key(lane.tier, number),
        place=place,
        tier=tier,
        sent_tier=lane.tier,
        sent_at_ms=lane.sent_at_ms(number),
        since_ms=lane.since_ms(number, tier, aging_ms),
        deliveries=deliveries,
        lease=lease,
    )


def _place_of_run(state: State, lane: Lane, number: int) -> tuple[str, int, int]:
    tier = state.shelf_tier(lane, number)
    if tier >= 0:
        return "waiting", lane.shelves[tier].stretch_of(number)[2], 0
    held = state.leases.holder_of(lane.tier, number)
    return ("", 0, 0) if held is None else ("leased", held[1][3], state.leases.id(held[0]))


def holders(state: State, messages: Collection[int]) -> dict[int, tuple[int, int]]:
    """Which of these messages are leased, and where: the lease and the row in it."""
    leases, rows = state.leases, state.rows
    found: dict[int, tuple[int, int]] = {}
    for message in dict.fromkeys(messages):
        lane, number, slot = message & 7, message >> 3, rows.index.get(message, 0)
        if slot:
            if rows.state[slot] == LEASED:
                bit = leases.bit_of(rows.lease[slot], slot, message)
                found[message] = rows.lease[slot], bit.bit_length() - 1
        elif lane < TIERS and (held := leases.holder_of(lane, number)) is not None:
            bit = leases.mask_of(held[0], lane, number, number + 1)
            found[message] = leases.id(held[0]), bit.bit_length() - 1
    return found


def late_holders(state: State, messages: Iterable[int]) -> dict[int, tuple[int, int]]:
    """The leases of messages that have lapsed, while these were not leased again; and their places in them."""
    found: dict[int, tuple[int, int]] = {}
    leases, rows = state.leases, state.rows
    for message in messages:
        lane, number = message & 7, message >> 3
        slot = state.slot_of(lane, number)
        if slot:
            if rows.lease[slot] and rows.state[slot] != LEASED:
                found[message] = rows.lease[slot], rows.bit[slot]
            continue
        tier = state.shelf_tier(state.lanes[lane], number) if lane < TIERS else -1
        lease = state.lanes[lane].shelves[tier].stretch_of(number)[3] if tier >= 0 else 0
        if lease:
            mask = leases.mask_of(lease & 0xFFFF_FFFF, lane, number, number + 1)
            found[message] = lease, mask.bit_length() - 1
    return found


def look_at_row(state: State, slot: int) -> MessageView:
    """One message that is a row."""
    rows = state.rows
    place = STATES[rows.state[slot]]
    return MessageView(
        message=key(rows.lane[slot], rows.number[slot]),
        place=place,
        tier=rows.tier[slot],
        sent_tier=rows.lane[slot],
        sent_at_ms=rows.sent_at_ms[slot],
        since_ms=rows.since_ms[slot],
        deliveries=rows.deliveries[slot],
        visible_at_ms=rows.visible_at_ms[slot] if place == "resting" else 0,
        group=state.groups.names[rows.group[slot]],
        lease=rows.lease[slot] if place == "leased" else 0,
        error=rows.errors.get(slot, ""),
        origin=rows.origins.get(slot),
        is_escalated=slot in rows.escalations,
    )


def dead_letters(state: State) -> Iterator[MessageView]:
    """The messages that came from other queues, in the order of their coming."""
    return (look_at_row(state, slot) for slot in state.rows.origins)


def moving(state: State) -> PendingMove | None:
    """The move that is on its way, if there is one, with all that the other queue has to be told."""
    pending = state.moves.pending
    if pending is None:
        return None
    found = columns(state, [state.slot_of(run.lane, run.first) for run in pending.runs])
    messages = tuple(key(run.lane, run.first) for run in pending.runs)
    return PendingMove(pending.into, pending.sequence, pending.is_redrive, messages, *found[1:])


def find(state: State, queue: int, lane: int, number: int) -> int | None:
    """The key, here, of a message whose id names this queue, lane and number as its first."""
    slot = state.rows.by_origin.get((queue, lane, number), 0)
    if slot:
        return key(state.rows.lane[slot], state.rows.number[slot])
    return key(lane, number) if queue == state.queue else None


def identity(state: State, message: int) -> tuple[int, int, int]:
    """The queue, lane and number that a message's id is made of: those of its first queue."""
    slot = state.slot_of(message & 7, message >> 3)
    origin = state.rows.origins.get(slot)
    return origin[:3] if origin is not None else (state.queue, message & 7, message >> 3)


def wakes_at_ms(state: State) -> int | None:
    """When a lease lapses or a resting message wakes, whichever is first; None if neither ever does.

    The caller has moved the queue to the present. Timers that hold no more are
    passed over, a few at a time: then the answer is too early.
    """
    if state.settings.is_paused or state.is_behind:
        return None
    lapses_ms = state.leases.wheel.next_held_ms(state.leases.held_timers) if state.leases.live else NEVER
    wakes_ms = state.delays.next_held_ms(state.held_delays) if state.resting else NEVER
    first_ms = min(lapses_ms, wakes_ms)
    return None if first_ms == NEVER else first_ms


def _always(_state: State, _event: Event) -> bool:
    return True


def _if_fifo(state: State, _event: Event) -> bool:
    """To settle the head of a group opens the group for the next message."""
    return state.settings.is_fifo


def _if_sooner(state: State, event: Extended) -> bool:
    slot = event.lease & 0xFFFF_FFFF
    return event.at_ms + event.lease_ms < state.leases.until_ms[slot] or slot in state.leases.deadlines


# Whether an event wakes the queue that it is of, which is asked before the event is applied. Of those that move
# messages to another queue, the other queue always wakes.
WAKING: dict[type[Event], Callable[[State, Any], bool]] = {
    Sent: _always,
    Released: _always,
    Returned: _always,
    Arrived: _always,
    Moved: _always,
    QueueCreated: _always,
    QueueChanged: _always,
    QueueDeleted: _always,
    CaughtUp: _always,
    Buried: _if_fifo,
    Redriven: _if_fifo,
    Acked: _if_fifo,
    Expired: _if_fifo,
    Cancelled: _if_fifo,
    Extended: _if_sooner,
}
