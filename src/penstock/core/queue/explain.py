"""Why a message was delivered when it was, or why it has not been yet.

An explanation is made of what the queue knows at this moment: where the message
is, what stands before it, what has to happen first, and when that may be at the
rate of the last seconds. An estimate is an estimate; the bound is a promise, for
messages without a group on a queue that is not paused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.contract.messages import TIERS, WaitReason
from penstock.core.queue.fairness import Shares
from penstock.core.queue.message_groups import UNGROUPED
from penstock.core.queue.queries import MessageView, look
from penstock.core.queue.rows import LEASED, MOVING, RESTING, SPENT
from penstock.core.queue.state import State

# Beyond so many rows a place in line is not counted out.
_COUNTED_MAX = 10_000


# Each reason as a sentence for people.
SENTENCES = {
    WaitReason.NONE: "It is next: the next lease that reaches its tier takes it.",
    WaitReason.BEHIND_OTHERS: "Messages before it in its tier are leased first.",
    WaitReason.DELAYED: "It is delayed: by its sender, or by the backoff after a failure.",
    WaitReason.GROUP_BUSY: "A message of its group is leased, and the group keeps its order.",
    WaitReason.GROUP_BLOCKED: "The first message of its group cannot be leased now, and the group keeps its order.",
    WaitReason.IN_FLIGHT: "It is leased: a consumer acks or releases it, or its lease expires.",
    WaitReason.AWAITING_BURIAL: "It has no deliveries left, and is stuck until the dead-letter queue has room.",
    WaitReason.MOVING: "It is moving to a queue of another shard.",
    WaitReason.PAUSED: "The queue is paused.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    message: MessageView
    wait_reason: WaitReason
    # Tiers it has come up, or was moved by an escalation, since it was sent.
    promotions: int
    # Messages before it in its tier; in a group that keeps its order, those before it in the group.
    messages_ahead: int = 0
    # When the clock alone changes something: its delay ends, or its lease expires.
    until_ms: int | None = None
    # Within how many leased messages it is leased, and when that may be.
    leases_bound: int | None = None
    start_estimate_ms: int | None = None


def explain(state: State, message: int) -> Explanation | None:
    """Explain a live message; None if it is settled: then its history has the answer."""
    seen = look(state, message)
    if seen is None:
        return None
    slot = state.slot_of(message & 7, message >> 3)
    gained = seen.sent_tier - seen.tier
    if seen.place == "leased":
        until_ms = state.leases.deadline_ms(seen.lease, state.leases.bit_of(seen.lease, slot, message))
        return Explanation(message=seen, wait_reason=WaitReason.IN_FLIGHT, promotions=gained, until_ms=until_ms)
    if seen.place in {"spent", "moving"}:
        waits = WaitReason.AWAITING_BURIAL if seen.place == "spent" else WaitReason.MOVING
        return Explanation(message=seen, wait_reason=waits, promotions=gained)
    if seen.place == "resting":
        waits, until_ms = WaitReason.DELAYED, seen.visible_at_ms
        return Explanation(
            message=seen, wait_reason=waits, promotions=gained, until_ms=until_ms, start_estimate_ms=until_ms
        )
    return _waiting(state, seen, slot, gained)


def _waiting(state: State, seen: MessageView, slot: int, gained: int) -> Explanation:
    group = state.rows.group[slot]
    if state.groups.is_ordered(group):
        waits, ahead = _in_group(state, slot, group)
    else:
        ahead = _ahead(state, seen, slot, group)
        waits = WaitReason.BEHIND_OTHERS if ahead else WaitReason.NONE
    if state.settings.is_paused:
        return Explanation(message=seen, wait_reason=WaitReason.PAUSED, promotions=gained, messages_ahead=ahead)
    bound = estimate_ms = None
    if not state.groups.is_ordered(group):
        bound = state.shares.bound(seen.tier, ahead)
        wait_ms = state.started.ms_for(expected_leases(state.shares, state.ready, seen.tier, ahead), state.now_ms)
        estimate_ms = None if wait_ms is None else state.now_ms + wait_ms
    return Explanation(
        message=seen,
        wait_reason=waits,
        promotions=gained,
        messages_ahead=ahead,
        leases_bound=bound,
        start_estimate_ms=estimate_ms,
    )


def _in_group(state: State, slot: int, group: int) -> tuple[WaitReason, int]:
    groups = state.groups
    ahead = 0
    before = state.rows.before[slot]
    while before and ahead < _COUNTED_MAX:
        ahead += 1
        before = state.rows.before[before]
    held = groups.tenants.held[group]
    if held and state.rows.order[slot] >= groups.end(group):
        return WaitReason.GROUP_BUSY, ahead + held
    if state.rows.state[groups.heads[group * TIERS]] in {RESTING, SPENT, LEASED, MOVING}:
        return WaitReason.GROUP_BLOCKED, ahead
    return (WaitReason.BEHIND_OTHERS if ahead else WaitReason.NONE), ahead


def _ahead(state: State, seen: MessageView, slot: int, group: int) -> int:
    """How many messages of its tier are leased before it, if nothing else comes."""
    mine = _ungrouped_ahead(state, seen, slot) if group == UNGROUPED else _rows_ahead(state, slot)
    turns, quiet = len(state.groups.next_in(seen.tier, _COUNTED_MAX)), 0
    noisy = state.groups.quiet_first(seen.tier, _COUNTED_MAX, state.leased, state.now_ms)[1]
    if group in noisy:
        # All that is quiet goes before it, and it takes turns with the other noisy groups.
        turns = len(noisy)
        quiet = state.ready[seen.tier] - sum(state.groups.visible[each * TIERS + seen.tier] for each in noisy)
    return ahead_at_most(mine=mine, turns=turns, quiet=quiet, ready=state.ready[seen.tier])


def ahead_at_most(*, mine: int, turns: int, quiet: int, ready: int) -> int:
    """How many go before the one that comes after ``mine`` of its own, where so many take turns after the quiet."""
    # Every other group may have a turn before each of its own.
    return min(quiet + (mine + 1) * max(1, turns) - 1, ready - 1)


def _ungrouped_ahead(state: State, seen: MessageView, slot: int) -> int:
    count = 0
    for lane in state.lanes[seen.tier :]:
        shelf = lane.shelves[seen.tier]
        if not shelf.count:
            continue
        if lane.tier == seen.sent_tier and not slot:
            count += shelf.before(seen.message >> 3)
        else:
            aged_ms = sum(state.settings.aging_ms[seen.tier + 1 : lane.tier + 1])
            count += shelf.before(lane.first_sent_after(seen.since_ms - aged_ms - 1))
    if slot:
        return count + _rows_ahead(state, slot)
    for row in state.groups.listed(seen.tier):
        if state.rows.since_ms[row] >= seen.since_ms or count > _COUNTED_MAX:
            break
        count += 1
    return count


def _rows_ahead(state: State, slot: int) -> int:
    count = 0
    before = state.rows.before[slot]
    while before and count < _COUNTED_MAX:
        count += 1
        before = state.rows.before[before]
    return count


def expected_leases(shares: Shares, ready: Sequence[int], tier: int, ahead: int) -> int:
    """How many messages are leased until it is its turn, among the tiers that have any now."""
    if shares.is_strict:
        return sum(ready[:tier]) + ahead
    weights = shares.weights
    active = sum(weights[other] for other in range(TIERS) if ready[other])
    return ahead * max(active, weights[tier]) // weights[tier]
