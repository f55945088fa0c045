"""What a send does to a queue: new messages become runs, or rows if they have anything of their own.

A batch whose messages are all rows and all wait is made in columns, a loop for each
step. Others are made one by one.
"""

from collections.abc import Sequence
from itertools import repeat

from penstock.contract.messages import TIERS
from penstock.contract.queue_settings import DedupScope
from penstock.core.queue.events import Sent
from penstock.core.queue.message import keys_of
from penstock.core.queue.state import State


def sent(state: State, event: Sent) -> None:
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
        slot = add_row(state, tier, number, now_ms, group)
        if deliveries_max:
            rows.deliveries_max[slot] = deliveries_max
        if dedup_id:
            rows.dedup_ids[slot] = dedup_id
            state.dedup.live[dedup_id] = key
        if visible_at_ms > now_ms:
            state.rest(slot, visible_at_ms)
        else:
            state.join(slot)


def add_row(state: State, tier: int, number: int, now_ms: int, group: bytes) -> int:
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
