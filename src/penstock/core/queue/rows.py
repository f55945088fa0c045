"""Messages something has happened to: one row each, in columns.

A message is a row if it has a group, an id that lives with it, a delay, a limit
of its own, a failure, an escalation or an origin. A row is a slot of `array`
columns, some hundred and twenty bytes with its entry in the index; free slots are used
again. What few rows have (an error, an origin, an escalation) is in
dictionaries by slot.

    state   FREE ─▶ RESTING ─▶ WAITING ─▶ LEASED ─▶ FREE
                       ▲           ▲         │
                       └─ release ─┴─ lapse ─┼─▶ SPENT (until it is buried)
                                             └─▶ MOVING (until another shard has it, from SPENT or to redrive)

Waiting rows are in lists: each row knows the one before and the one after it,
so that any of them leaves its list at once. Slot 0 is no row: it ends lists.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.queue.message import Origin

FREE, WAITING, RESTING, LEASED, SPENT, MOVING = range(6)
STATES = ("free", "waiting", "resting", "leased", "spent", "moving")


class Escalation(NamedTuple):
    """Where an escalated message falls back to, and when; 0 is never."""

    tier: int
    until_ms: int


class Rows:
    __slots__ = (
        "lane",
        "number",
        "tier",
        "state",
        "deliveries",
        "deliveries_max",
        "first_leased_ms",
        "last_leased_ms",
        "served_tier",
        "group",
        "order",
        "sent_at_ms",
        "since_ms",
        "visible_at_ms",
        "lease",
        "bit",
        "before",
        "after",
        "free",
        "index",
        "errors",
        "dedup_ids",
        "origins",
        "escalations",
        "by_origin",
    )

    def __init__(self) -> None:
        self.lane = array("B", [0])
        self.number = array("Q", [0])
        self.tier = array("B", [0])
        self.state = array("B", [FREE])
        self.deliveries = array("H", [0])
        self.deliveries_max = array("H", [0])
        # When it was leased first and last, and the tier it was served at last. They say nothing before a delivery.
        self.first_leased_ms = array("q", [0])
        self.last_leased_ms = array("q", [0])
        self.served_tier = array("B", [0])
        self.group = array("I", [0])
        # Rises with each send of the queue, across lanes: the order inside a group.
        self.order = array("Q", [0])
        self.sent_at_ms = array("q", [0])
        # When it joined its tier: what it ages by, and its place among others of the tier.
        self.since_ms = array("q", [0])
        # When a resting row wakes.
        self.visible_at_ms = array("q", [0])
        # The lease that holds it, or held it last, and its bit there; 0 for none.
        self.lease = array("Q", [0])
        self.bit = array("I", [0])
        self.before = array("I", [0])
        self.after = array("I", [0])
        self.free: list[int] = []
        # From the key of lane and number to the slot.
        self.index: dict[int, int] = {}
        self.errors: dict[int, str] = {}
        self.dedup_ids: dict[int, bytes] = {}
        self.origins: dict[int, Origin] = {}
        # By the queue, lane and number of the first queue.
        self.by_origin: dict[tuple[int, int, int], int] = {}
        self.escalations: dict[int, Escalation] = {}

    def __len__(self) -> int:
        return len(self.index)

    def add(self, lane: int, number: int, sent_at_ms: int, order: int) -> int:
        """Make a row and return its slot. It is in no list and in no state yet."""
        if self.free:
            slot = self.free.pop()
            self.lane[slot] = self.tier[slot] = lane
            self.number[slot] = number
            self.order[slot] = order
            self.sent_at_ms[slot] = self.since_ms[slot] = sent_at_ms
        else:
            slot = len(self.lane)
            self._grow(lane, number, sent_at_ms, order)
        self.index[number << 3 | lane] = slot
        return slot

    def add_all(self, keys: Sequence[int], sent_at_ms: int, order: int) -> list[int]:
        """`add` for a batch that begins to wait: each row one later in the order than the one before it."""
        free = self.free
        slots = free[: -1 - len(keys) : -1]
        del free[len(free) - len(slots) :]
        lane, tier, number, state = self.lane, self.tier, self.number, self.state
        sent, since, orders = self.sent_at_ms, self.since_ms, self.order
        for at, (slot, key) in enumerate(zip(slots, keys, strict=False), start=order):
            lane[slot] = tier[slot] = key & 7
            number[slot] = key >> 3
            sent[slot] = since[slot] = sent_at_ms
            orders[slot] = at
            state[slot] = WAITING
        again = len(slots)
        if again < len(keys):
            slots += self._append(keys[again:], sent_at_ms, order + again)
        self.index.update(zip(keys, slots, strict=True))
        return slots

    def _append(self, keys: Sequence[int], sent_at_ms: int, order: int) -> range:
        """New slots for messages that begin to wait, a column at a time."""
        first, count = len(self.lane), len(keys)
        lanes = bytes([key & 7 for key in keys])
        self.lane.frombytes(lanes)
        self.tier.frombytes(lanes)
        self.number.extend([key >> 3 for key in keys])
        self.order.extend(range(order, order + count))
        times = array("q", (sent_at_ms,)) * count
        self.sent_at_ms.extend(times)
        self.since_ms.extend(times)
        self.state.frombytes(bytes((WAITING,)) * count)
        for column in (
            self.deliveries,
            self.deliveries_max,
            self.first_leased_ms,
            self.last_leased_ms,
            self.served_tier,
            self.group,
            self.visible_at_ms,
            self.lease,
            self.bit,
            self.before,
            self.after,
        ):
            column.frombytes(bytes(count * column.itemsize))
        return range(first, first + count)

    def _grow(self, lane: int, number: int, sent_at_ms: int, order: int) -> None:
        self.lane.append(lane)
        self.tier.append(lane)
        self.number.append(number)
        self.order.append(order)
        self.sent_at_ms.append(sent_at_ms)
        self.since_ms.append(sent_at_ms)
        self.state.append(FREE)
        self.deliveries.append(0)
        self.deliveries_max.append(0)
        self.first_leased_ms.append(0)
        self.last_leased_ms.append(0)
        self.served_tier.append(0)
        self.group.append(0)
        self.visible_at_ms.append(0)
        self.lease.append(0)
        self.bit.append(0)
        self.before.append(0)
        self.after.append(0)

    def deliver(self, slot: int, deliveries: int, first_ms: int, last_ms: int, tier: int) -> None:
        """Give a row the deliveries it had before it was a row."""
        self.deliveries[slot] = deliveries
        self.first_leased_ms[slot] = first_ms
        self.last_leased_ms[slot] = last_ms
        self.served_tier[slot] = tier

    def adopt(self, others: "Rows", was: int) -> int:
        """Make a row as it is among others, but in no group and no lease, and return its slot."""
        slot = self.add(others.lane[was], others.number[was], others.sent_at_ms[was], others.order[was])
        self.tier[slot] = others.tier[was]
        self.state[slot] = others.state[was]
        self.deliveries_max[slot] = others.deliveries_max[was]
        self.since_ms[slot] = others.since_ms[was]
        self.visible_at_ms[slot] = others.visible_at_ms[was]
        last_leased_ms, served_tier = others.last_leased_ms[was], others.served_tier[was]
        self.deliver(slot, others.deliveries[was], others.first_leased_ms[was], last_leased_ms, served_tier)
        if was in others.errors:
            self.errors[slot] = others.errors[was]
        if was in others.dedup_ids:
            self.dedup_ids[slot] = others.dedup_ids[was]
        if was in others.escalations:
            self.escalations[slot] = others.escalations[was]
        if was in others.origins:
            self.origins[slot] = others.origins[was]
            self.by_origin[others.origins[was][:3]] = slot
        return slot

    def drop(self, slots: list[int]) -> None:
        """Forget rows that are in no list any more."""
        index, lane, number, state, group = self.index, self.lane, self.number, self.state, self.group
        deliveries, deliveries_max, lease = self.deliveries, self.deliveries_max, self.lease
        for slot in slots:
            del index[number[slot] << 3 | lane[slot]]
            state[slot] = FREE
            group[slot] = deliveries[slot] = deliveries_max[slot] = lease[slot] = 0
        self.free += slots
        if self.errors or self.escalations or self.origins:
            self._drop_more(slots)

    def _drop_more(self, slots: list[int]) -> None:
        for slot in slots:
            self.errors.pop(slot, None)
            self.escalations.pop(slot, None)
            origin = self.origins.pop(slot, None)
            if origin is not None:
                del self.by_origin[origin[:3]]


def key(lane: int, number: int) -> int:
    """A message's lane and number as one number."""
    return number << 3 | lane
