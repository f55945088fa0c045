"""Message groups: order inside each, fairness between all.

Rows wait in lists. On a standard queue there is one list for each group and tier,
in the order of joining, and a tier serves its groups in turns, one message each.
Messages without a group, runs and rows together, are one group among the
others (number 0).

On a FIFO queue a group is one list in the order of sending. It is *open* when no
message of it is leased (with `opens_early`: none before its first one that is not) and its
first one is visible; it stands in the rotation of
the most urgent tier that is visible in it. A turn gives as much of it as is wanted.

    group 7    ┌─▶ 12 ─▶ 13 ─▶ 17 ─▶ …          LEASED rows are in no list,
               head                             resting and spent ones keep their place

A rotation may name a group that has nothing for it any more. The reader skips
such a name, and it goes when its turn comes.

Noisy groups
------------
A noisy group of a standard queue is served only when no quiet group waits. A group is
*noisy* while it holds more than its share of what is leased, and at least a set number
of messages; or while it has taken more than its share of the time for which messages
of groups were held lately. Thresholds are AWS's, and settings of the queue.

    held     a message is leased ──▶ +1        acked, released, lapsed ──▶ -1
    time     acked, released, lapsed ──▶ + how long it was held; halved each minute

Shares are of a whole, so with a threshold of ten percent fewer than ten groups are noisy
by each measure: a search for a quiet group passes that many at most, and no list of
noisy groups is kept. No group is noisy for ever: a group that gets nothing holds less and
less, and its time is halved while that of the others grows.

Messages without a group are tenants of their own, each of them, so they are never noisy
and are not counted: a queue without groups pays nothing.

The time of a group is halved only when it is read or added to, by as many
minutes as have passed; so it is a pure function of what was added and when.
"""

from array import array
from bisect import insort
from collections import deque
from collections.abc import Iterator, Sequence

from penstock.contract.messages import TIERS
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.rows import LEASED, WAITING, Rows

RECENT_MS = 60_000


class Tenants:
    __slots__ = ("percent", "leased_min", "time_percent", "held", "time_ms", "minute", "total_ms", "total_minute")

    def __init__(self, settings: QueueSettings) -> None:
        self.follow(settings)
        # By group: messages leased now. It is kept for FIFO groups as well, which are closed by it.
        self.held = array("I", [0])
        # By group: for how long its messages were held lately, and the minute up to which that is halved.
        self.time_ms = array("Q", [0])
        self.minute = array("I", [0])
        self.total_ms = 0
        self.total_minute = 0

    def follow(self, settings: QueueSettings) -> None:
        """Judge by these settings from now on."""
        self.percent = settings.noisy_percent
        self.leased_min = settings.noisy_leased_min
        self.time_percent = settings.noisy_time_percent

    def grow(self) -> None:
        """There is one more group."""
        self.held.append(0)
        self.time_ms.append(0)
        self.minute.append(0)

    def forget(self, group: int) -> None:
        """A group has no messages any more: the next group with its number starts from zero."""
        self.time_ms[group] = 0

    def let_go(self, slots: Sequence[int], group_of: "array[int]", leased_ms: "array[int]", now_ms: int) -> None:
        """Rows are held no longer, of these groups, and leased then: what they took is counted."""
        held, time_ms, minutes, minute = self.held, self.time_ms, self.minute, now_ms // RECENT_MS
        total_ms = 0
        for slot in slots:
            group = group_of[slot]
            if not group:
                continue
            held[group] -= 1
            lasted_ms = now_ms - leased_ms[slot]
            if lasted_ms:
                if minutes[group] != minute:
                    time_ms[group] >>= minute - minutes[group]
                    minutes[group] = minute
                time_ms[group] += lasted_ms
                total_ms += lasted_ms
        if total_ms:
            self.total_ms = (self.total_ms >> (minute - self.total_minute)) + total_ms
            self.total_minute = minute

    def bounds(self, leased: int, now_ms: int) -> tuple[int, int]:
        """What no quiet group exceeds, when so many messages are leased: messages held, and recent time."""
        total_ms = self.total_ms >> (now_ms // RECENT_MS - self.total_minute)
        return max(self.leased_min - 1, self.percent * leased // 100), self.time_percent * total_ms // 100

    def exceeds_time(self, group: int, time_ms_most: int, now_ms: int) -> bool:
        return self.time_ms[group] >> (now_ms // RECENT_MS - self.minute[group]) > time_ms_most

    def is_noisy(self, group: int, leased: int, now_ms: int) -> bool:
        held_most, time_ms_most = self.bounds(leased, now_ms)
        return self.held[group] > held_most or self.exceeds_time(group, time_ms_most, now_ms)


NOWHERE = 255
# No order is so high.
NO_END = 1 << 64
UNGROUPED = 0


class MessageGroups:
    __slots__ = (
        "is_fifo",
        "rows",
        "plain",
        "numbers",
        "names",
        "heads",
        "tails",
        "visible",
        "queued",
        "tenants",
        "members",
        "opens_early",
        "orders",
        "open_at",
        "rotations",
        "free",
        "_hint",
    )

    def __init__(self, rows: Rows, plain: list[int], settings: QueueSettings) -> None:
        self.is_fifo = settings.is_fifo
        self.opens_early = settings.is_fifo and settings.opens_early
        # With `opens_early`, by FIFO group: the orders of its messages that are leased, rising.
        self.orders: dict[int, list[int]] = {}
        self.rows = rows
        # How many messages wait in runs, by tier. Kept by the queue, read here.
        self.plain = plain
        self.numbers: dict[bytes, int] = {}
        self.names: list[bytes] = [b""]
        # The next four have a place for each group and tier. A FIFO group has its list at tier 0.
        self.heads = array("I", [0] * TIERS)
        self.tails = array("I", [0] * TIERS)
        self.visible = array("I", [0] * TIERS)
        # Whether the rotation of the tier names the group.
        self.queued = array("B", [0] * TIERS)
        # Messages leased now, and on a standard queue who is noisy by them.
        self.tenants = Tenants(settings)
        # FIFO: the tier whose rotation serves it.
        self.open_at = array("B", [NOWHERE])
        self.members = array("I", [0])
        self.rotations: tuple[deque[int], ...] = tuple(deque() for _ in range(TIERS))
        self.free: list[int] = []
        # The row last put in its place: where the next one very likely belongs.
        self._hint = 0

    def number(self, name: bytes) -> int:
        """The number of a group, which it has while it has messages."""
        number = self.numbers.get(name)
        if number is not None:
            return number
        if self.free:
            number = self.free.pop()
            self.names[number] = name
        else:
            number = len(self.names)
            self.names.append(name)
            for column in (self.heads, self.tails, self.visible):
                column.extend((0,) * TIERS)
            self.queued.extend((0,) * TIERS)
            self.tenants.grow()
            self.members.append(0)
            self.open_at.append(NOWHERE)
        self.numbers[name] = number
        return number

    def forget(self, group: int) -> None:
        """A group has no messages any more: its number is free."""
        del self.numbers[self.names[group]]
        self.names[group] = b""
        self.tenants.forget(group)
        self.orders.pop(group, None)
        self.free.append(group)

    def let_go(self, slots: Sequence[int], now_ms: int) -> None:
        """Leased rows are held no longer; what they are instead is said by others."""
        group_of = self.rows.group
        if not self.is_fifo:
            self.tenants.let_go(slots, group_of, self.rows.last_leased_ms, now_ms)
            return
        held = self.tenants.held
        for slot in slots:
            group = group_of[slot]
            if group:
                held[group] -= 1
                if self.opens_early:
                    self.orders[group].remove(self.rows.order[slot])

    def hold(self, slot: int) -> None:
        """A row of a group is leased; who leases it says the rest."""
        self.tenants.held[self.rows.group[slot]] += 1
        self._keep_orders((slot,))

    def end(self, group: int) -> int:
        """The order from which on nothing of a FIFO group is served: that of its first leased message.

        Without `opens_early` one that is leased keeps back all of them.
        """
        if not self.tenants.held[group]:
            return NO_END
        return self.orders[group][0] if self.opens_early else 0

    def follow(self, settings: QueueSettings) -> None:
        """Take over settings. The first two are given when the queue is created; no change touches them."""
        self.is_fifo = settings.is_fifo
        self.opens_early = settings.is_fifo and settings.opens_early
        self.tenants.follow(settings)

    def find_orders(self) -> None:
        """Look for what is leased in all rows."""
        self.orders = {}
        if self.opens_early:
            self._keep_orders([slot for slot, state in enumerate(self.rows.state) if state == LEASED])

    def _keep_orders(self, slots: Sequence[int]) -> None:
        for slot in slots if self.opens_early else ():
            group = self.rows.group[slot]
            if group:
                insort(self.orders.setdefault(group, []), self.rows.order[slot])

    def lose(self, group: int) -> None:
        """A message of a group is settled: it is in no list and no lease any more."""
        if self.is_fifo and self.heads[group * TIERS] and (self.opens_early or not self.tenants.held[group]):
            self.refresh(group)
        members = self.members[group] - 1
        self.members[group] = members
        if not members:
            self.forget(group)

    def is_ordered(self, group: int) -> bool:
        return self.is_fifo and group != UNGROUPED

    # Lists.

    def append(self, place: int, slot: int) -> None:
        last = self.tails[place]
        self.rows.before[slot] = last
        self.rows.after[slot] = 0
        if last:
            self.rows.after[last] = slot
        else:
            self.heads[place] = slot
        self.tails[place] = slot

    def append_all(self, slots: Sequence[int], tiers: Sequence[int]) -> None:
        """New rows without a group wait, behind the others of their tiers."""
        heads, tails, before, after, visible = self.heads, self.tails, self.rows.before, self.rows.after, self.visible
        for slot, tier in zip(slots, tiers, strict=True):
            last = before[slot] = tails[tier]
            if last:
                after[last] = slot
            else:
                heads[tier] = slot
            after[slot] = 0
            tails[tier] = slot
            visible[tier] += 1
            if self.rotations[tier]:
                self.name_ungrouped(tier)

    def append_grouped(self, slots: Sequence[int], tiers: Sequence[int], names: Sequence[bytes]) -> None:
        """New rows wait, each behind the others of its group and tier."""
        numbers, group_of, members, queued = self.numbers, self.rows.group, self.members, self.queued
        heads, tails, before, after, visible = self.heads, self.tails, self.rows.before, self.rows.after, self.visible
        for slot, tier, name in zip(slots, tiers, names, strict=True):
            group = numbers.get(name) or self.number(name)
            place = group * TIERS + tier
            group_of[slot] = group
            members[group] += 1
            visible[place] += 1
            last = before[slot] = tails[place]
            if last:
                after[last] = slot
            else:
                heads[place] = slot
            after[slot] = 0
            tails[place] = slot
            if not queued[place]:
                self.name_in(group, tier)

    def append_in_order(self, slots: Sequence[int], tiers: Sequence[int], names: Sequence[bytes]) -> None:
        """New rows of a FIFO queue wait, each behind all others of its group."""
        numbers, group_of, members, open_at = self.numbers, self.rows.group, self.members, self.open_at
        tails, before, after, visible = self.tails, self.rows.before, self.rows.after, self.visible
        for slot, tier, name in zip(slots, tiers, names, strict=True):
            group = numbers.get(name) or self.number(name)
            place = group * TIERS
            group_of[slot] = group
            members[group] += 1
            visible[place + tier] += 1
            last = before[slot] = tails[place]
            after[slot] = 0
            tails[place] = slot
            if last:
                after[last] = slot
                # A more urgent tier changes what an open group is to the others.
                if tier < open_at[group] != NOWHERE:
                    self.refresh(group)
            else:
                self.heads[place] = slot
                if not self.tenants.held[group]:
                    open_at[group] = tier
                    self.name_in(group, tier)

    def insert(self, place: int, slot: int, order: "array[int]") -> None:
        """Put a row in its place in a list that is sorted by ``order``, behind its equals."""
        rows, mine = self.rows, order[slot]
        last = self.tails[place]
        if not last or order[last] <= mine:
            self.append(place, slot)
            return
        before, after = 0, self.heads[place]
        if self._is_hint(place) and order[self._hint] <= mine:
            before, after = self._hint, rows.after[self._hint]
        while order[after] <= mine:
            before, after = after, rows.after[after]
        rows.before[slot], rows.after[slot] = before, after
        rows.before[after] = slot
        if before:
            rows.after[before] = slot
        else:
            self.heads[place] = slot
        self._hint = slot

    def _is_hint(self, place: int) -> bool:
        hint = self._hint
        if not hint:
            return False
        group = self.rows.group[hint]
        return place == group * TIERS + (0 if self.is_ordered(group) else self.rows.tier[hint])

    def hand_out(self, slots: Sequence[int], served_at: int) -> None:
        """Rows leave their lists, and their groups have had their turn at a tier; one that keeps an order is closed."""
        tier_of, group_of, before, after = self.rows.tier, self.rows.group, self.rows.before, self.rows.after
        heads, visible, queued, is_fifo = self.heads, self.visible, self.queued, self.is_fifo
        held = self.tenants.held
        rotation = self.rotations[served_at]
        for slot in slots:
            group = group_of[slot]
            place = group * TIERS
            named = place + served_at
            visible[place + tier_of[slot]] -= 1
            held[group] += 1
            if is_fifo and group:
                self.open_at[group] = NOWHERE
            else:
                place += tier_of[slot]
            following = after[slot]
            if following and heads[place] == slot:
                # The usual row is the first of its list.
                heads[place] = following
                before[following] = 0
            else:
                self.unlink(place, slot)
            if queued[named]:
                if rotation[0] != group or group == UNGROUPED:
                    self.turn(served_at, group)
                elif is_fifo or not visible[named]:
                    # `turn` of the group in front, which is closed now or has nothing left.
                    rotation.popleft()
                    queued[named] = 0
                else:
                    rotation.rotate(-1)
        # Counted with the others, which saves a question for each row; it means nothing.
        held[UNGROUPED] = 0
        if self._hint in slots:
            self._hint = 0
        self._keep_orders(slots)

    def unlink(self, place: int, slot: int) -> None:
        rows = self.rows
        if slot == self._hint:
            self._hint = 0
        before, after = rows.before[slot], rows.after[slot]
        if before:
            rows.after[before] = after
        else:
            self.heads[place] = after
        if after:
            rows.before[after] = before
        else:
            self.tails[place] = before

    def listed(self, place: int) -> Iterator[int]:
        slot, after = self.heads[place], self.rows.after
        while slot:
            yield slot
            slot = after[slot]

    # Turns.

    def name_in(self, group: int, tier: int) -> None:
        """Let a rotation serve a group, and the ungrouped beside it."""
        place = group * TIERS + tier
        if not self.queued[place]:
            self.queued[place] = 1
            self.rotations[tier].append(group)
        if group != UNGROUPED and self.plain[tier] + self.visible[tier]:
            self.name_ungrouped(tier)

    def name(self, group: int, tier: int) -> None:
        """Let a rotation serve the groups that it has something for now."""
        if group != UNGROUPED:
            self.name_in(group, tier)
        elif self.rotations[tier]:
            self.name_ungrouped(tier)

    def name_ungrouped(self, tier: int) -> None:
        """The ungrouped take turns only where there are groups to take them with."""
        if self.rotations[tier] and not self.queued[tier] and self.plain[tier] + self.visible[tier]:
            self.queued[tier] = 1
            self.rotations[tier].append(UNGROUPED)

    def is_served(self, group: int, tier: int) -> bool:
        """Whether a group has something for a tier."""
        if group == UNGROUPED:
            return self.plain[tier] + self.visible[tier] > 0
        if self.is_fifo:
            return self.open_at[group] == tier
        return self.visible[group * TIERS + tier] > 0

    def turn(self, tier: int, group: int) -> None:
        """A group has had its turn: it goes to the end of the rotation, or out of it."""
        rotation = self.rotations[tier]
        if rotation and rotation[0] == group and group != UNGROUPED:
            # The usual turn: that of the group in front.
            if self.is_served(group, tier):
                rotation.rotate(-1)
            else:
                rotation.popleft()
                self.queued[group * TIERS + tier] = 0
            return
        while rotation and rotation[0] != group and not self.is_served(rotation[0], tier):
            self.queued[rotation.popleft() * TIERS + tier] = 0
        if not self.queued[group * TIERS + tier]:
            return
        if rotation[0] == group:
            rotation.popleft()
        else:
            rotation.remove(group)
        if self.is_served(group, tier) and (group != UNGROUPED or rotation):
            rotation.append(group)
        else:
            self.queued[group * TIERS + tier] = 0

    def next_in(self, tier: int, most: int) -> list[int]:
        """The first groups of a rotation that have something for it."""
        found: list[int] = []
        is_fifo, open_at, visible = self.is_fifo, self.open_at, self.visible
        for group in self.rotations[tier]:
            # `is_served`, without a call for each.
            if group == UNGROUPED:
                has_some = self.plain[tier] + visible[tier] > 0
            elif is_fifo:
                has_some = open_at[group] == tier
            else:
                has_some = visible[group * TIERS + tier] > 0
            if has_some:
                found.append(group)
                if len(found) >= most:
                    break
        return found

    def quiet_first(self, tier: int, most: int, leased: int, now_ms: int) -> tuple[list[int], list[int]]:
        """`next_in`, but quiet groups only; and the noisy ones that were passed over to find them."""
        if self.is_fifo:
            return self.next_in(tier, most), []
        found: list[int] = []
        noisy: list[int] = []
        tenants, visible, plain = self.tenants, self.visible, self.plain[tier]
        held, time_ms = tenants.held, tenants.time_ms
        held_most, time_ms_most = tenants.bounds(leased, now_ms)
        for group in self.rotations[tier]:
            if not visible[group * TIERS + tier] and not (plain and group == UNGROUPED):
                continue
            # `is_noisy`: what is not halved yet is looked at only if it is too much as it is.
            if held[group] > held_most or (
                time_ms[group] > time_ms_most and tenants.exceeds_time(group, time_ms_most, now_ms)
            ):
                noisy.append(group)
                continue
            found.append(group)
            if len(found) >= most:
                break
        return found, noisy

    def refresh(self, group: int) -> None:
        """Open or close a FIFO group, at the tier it now belongs to."""
        place = group * TIERS
        head = self.heads[place]
        tier = NOWHERE
        if head and self.rows.state[head] == WAITING and self.rows.order[head] < self.end(group):
            # The head is visible, so one of them is more than 0.
            tier = 0
            while not self.visible[place + tier]:
                tier += 1
        if tier != self.open_at[group]:
            self.open_at[group] = tier
            if tier != NOWHERE:
                self.name_in(group, tier)

    def front(self, group: int, most: int) -> list[int]:
        """The rows at the front of an open FIFO group that are visible."""
        state, after, order, end = self.rows.state, self.rows.after, self.rows.order, self.end(group)
        slot = self.heads[group * TIERS]
        found: list[int] = []
        while slot and len(found) < most and state[slot] == WAITING and order[slot] < end:
            found.append(slot)
            slot = after[slot]
        return found
