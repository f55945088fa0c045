"""What a queue is at one moment, and how a message changes its place.

A live message is in exactly one of these places:

    place                  as a run                    as a row
    ─────────────────────  ──────────────────────────  ─────────────────────────────────
    waiting, by tier       on a shelf of its lane      WAITING, in a list of its group
    resting until a time   –                           RESTING, with a timer
    leased                 in a lease                  LEASED, in a lease
    spent, to be buried    –                           SPENT
    on its way elsewhere   –                           MOVING

`State` moves messages between places and keeps the counts. It knows nothing of
events (`apply.py`) and decides nothing (`queue.py`).

`advance` does what follows from the time alone. Everything timed happens in the
order of time, and at one instant in this order: escalations end, leases lapse,
resting messages wake, rows age. So advancing in steps or at once is the same.
When more is due than one step of the loop may take, `CaughtUp` does it a part at a
time; between the parts the queue goes on as if the rest were not due yet.

Runs age last of all at an instant: what tier they have come to is a function of their
time of sending, so it does not matter when it is looked at, except to the turns of groups.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

from penstock.contract.limits import AUDIT_MAX, LEASE_MESSAGES_MAX
from penstock.contract.messages import TIERS
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.deduplication import Dedup, Senders
from penstock.core.queue.events import Tally
from penstock.core.queue.fairness import Shares
from penstock.core.queue.lanes import Lane, Stretch
from penstock.core.queue.leases import Leases, RunPart, lowest_bits
from penstock.core.queue.message import Audit, Run
from penstock.core.queue.message_groups import NOWHERE, MessageGroups
from penstock.core.queue.rate_meter import Meter
from penstock.core.queue.retry import goes_back, is_spent
from penstock.core.queue.rows import LEASED, RESTING, SPENT, WAITING, Rows, key
from penstock.core.queue.timer_wheel import NEVER, Timer, Wheel

# Timers that hold no more may be so many times those that do, before they are worked off in turns.
_STALE_MAX = 4


class Move(NamedTuple):
    """Messages on their way to another queue."""

    into: int
    # Counts the moves of the source, from 1.
    sequence: int
    # Dead letters that go back, or spent messages to be buried.
    is_redrive: bool
    # One run of length 1 for each message.
    runs: tuple[Run, ...]


class Moves:
    __slots__ = ("pending", "started", "arrived")

    def __init__(self) -> None:
        self.pending: Move | None = None
        # How many moves have begun here.
        self.started = 0
        # By source, the highest sequence that came here. There are no more of them than queues.
        self.arrived: dict[int, int] = {}

    @property
    def count(self) -> int:
        """How many messages are on their way."""
        return 0 if self.pending is None else len(self.pending.runs)


class State:
    __slots__ = (
        "queue",
        "created_at_ms",
        "settings",
        "now_ms",
        "due_ms",
        "is_behind",
        "lanes",
        "rows",
        "groups",
        "leases",
        "shares",
        "dedup",
        "senders",
        "audit",
        "delays",
        "aging",
        "reverts",
        "spent",
        "moves",
        "ready",
        "plain",
        "leased",
        "resting",
        "order",
        "drained",
        "started",
        "tally",
    )

    def __init__(self, queue: int, settings: QueueSettings) -> None:
        self.queue = queue
        self.created_at_ms = 0
        self.settings = settings
        self.now_ms = 0
        # Nothing timed happens before this instant.
        self.due_ms = NEVER
        # Too much is due for one step: timers wait for `CaughtUp`, and only the clock goes on.
        self.is_behind = False
        self.lanes = tuple(Lane(tier) for tier in range(TIERS))
        # Messages that wait and are visible, by tier: all of them, and those in runs.
        self.ready = [0] * TIERS
        self.plain = [0] * TIERS
        self.leased = 0
        self.resting = 0
        self.rows = Rows()
        self.groups = MessageGroups(self.rows, self.plain, settings)
        self.leases = Leases()
        self.shares = Shares(settings.weights, is_strict=settings.is_strict)
        self.dedup = Dedup()
        self.senders = Senders()
        self.audit: deque[Audit] = deque(maxlen=AUDIT_MAX)
        self.delays = Wheel()
        self.aging = Wheel()
        self.reverts = Wheel()
        # Rows to be buried, in the order they were spent.
        self.spent: dict[int, None] = {}
        self.moves = Moves()
        # Counts rows as they are sent, across lanes.
        self.order = 0
        self.drained = Meter()
        self.started = Meter()
        self.tally = Tally()

    @property
    def live(self) -> int:
        """How many messages the queue holds, in whatever place."""
        return sum(self.ready) + self.leased + self.resting + len(self.spent) + self.moves.count

    # Time.

    def advance(self, now_ms: int) -> None:
        """Do what follows from the time alone, up to ``now_ms``. Time does not go back."""
        if now_ms >= self.due_ms:
            self._catch_up(now_ms)
        if now_ms > self.now_ms:  # noqa: PLR1730 - on the way of every verb, and max() is a call.
            self.now_ms = now_ms

    def _catch_up(self, now_ms: int) -> None:
        if self.is_behind:
            return
        while (at_ms := self._next_timer_ms()) <= now_ms:
            self.now_ms = max(self.now_ms, at_ms)
            if self.groups.numbers:
                # A run that ages may let the ungrouped into a rotation, and who comes first is served first.
                self.age_runs(at_ms - 1)
            for slot in self.reverts.pop_due(at_ms):
                self._revert(slot, at_ms)
            for lease in self.leases.wheel.pop_due(at_ms):
                self._lapse(lease, at_ms)
            for slot in self.delays.pop_due(at_ms):
                self._wake(slot, at_ms)
            for slot in self.aging.pop_due(at_ms):
                self._age(slot, at_ms)
        self._end_of_time(now_ms)

    def _end_of_time(self, now_ms: int) -> None:
        self.dedup.forget(now_ms)
        self.senders.forget(now_ms)
        self.age_runs(now_ms)
        self.find_due()

    def is_overdue(self, now_ms: int, most: int) -> bool:
        """Whether more than ``most`` messages lapse, wake or age by ``now_ms``. To find out takes that many steps."""
        if self.leased <= most >= len(self.rows) or now_ms < self.due_ms or self.is_behind:
            return False
        due = 0
        for wheel in (self.delays, self.aging, self.reverts):
            due += sum(1 for _ in islice(wheel.due(now_ms), most + 1 - due))
        for lease in islice(self.leases.wheel.due(now_ms), _STALE_MAX * most + 1):
            # One that holds no more costs little; many of them are a step of their own.
            due += self._cost(lease, now_ms)
            if due > most:
                return True
        return due > most

    def _cost(self, lease: int, now_ms: int) -> int:
        """How many messages a lapse touches: those of a run that only goes back to its place count for one."""
        slot = self.leases.find(lease)
        mask = self.leases.lapsed_mask(slot, now_ms) if slot >= 0 else 0
        if not mask:
            return 0
        if slot in self.leases.parts:
            return mask.bit_count()
        deliveries = self.leases.deliveries[slot]
        stays = not is_spent(self.settings, deliveries, 0) and not goes_back(self.settings, deliveries)
        return 1 if stays else mask.bit_count()

    def catch_up(self, now_ms: int, most: int) -> None:
        """Do what follows from the time alone, for at most ``most`` messages; the rest waits for the next call.

        Until all is done, time does nothing by itself.
        """
        self.now_ms = max(self.now_ms, now_ms)
        while (at_ms := self._next_held_ms()) <= now_ms:
            if most <= 0:
                self.is_behind = True
                return
            if self.groups.numbers:
                self.age_runs(at_ms - 1)
            most -= self._do_some(at_ms, most)
        self.is_behind = False
        self._end_of_time(now_ms)

    def _do_some(self, at_ms: int, most: int) -> int:
        """Do what is due at an instant in the order of `_catch_up`, for so many messages, and return for how many."""
        done = 0
        for wheel, act in (
            (self.reverts, self._revert),
            (self.leases.wheel, partial(self._lapse, most=most)),
            (self.delays, self._wake),
            (self.aging, self._age),
        ):
            while wheel.next_ms() <= at_ms:
                if done >= most:
                    return done
                done += act(wheel.pop(), at_ms)
        return done

    def _next_held_ms(self) -> int:
        """When the next timer is due that still holds; those that do not are dropped: they count for nothing."""
        wheels = (
            (self.leases.wheel, self.leases.held_timers),
            (self.delays, self.held_delays),
            (self.aging, self._held_aging),
            (self.reverts, self.held_reverts),
        )
        return min(wheel.drop_to_held(held) for wheel, held in wheels)

    def _next_timer_ms(self) -> int:
        return min(self.leases.wheel.next_ms(), self.delays.next_ms(), self.aging.next_ms(), self.reverts.next_ms())

    def find_due(self) -> None:
        aged = min(lane.ages_at_ms(self.settings.aging_ms) for lane in self.lanes)
        self.due_ms = min(self._next_timer_ms(), self.dedup.next_ms(), self.senders.next_ms(), aged)

    def soon(self, at_ms: int) -> None:
        """Something timed happens at this instant."""
        self.due_ms = min(self.due_ms, at_ms)

    def age_runs(self, now_ms: int) -> None:
        for lane in self.lanes:
            for tier, count in lane.age(now_ms, self.settings.aging_ms):
                self._count_plain(tier, -count)
                self._count_plain(tier - 1, count)
                self.tally.promoted += count

    def _delay_holds(self, at_ms: int, slot: int) -> bool:
        return self.rows.state[slot] == RESTING and self.rows.visible_at_ms[slot] == at_ms

    def _aging_holds(self, at_ms: int, slot: int) -> bool:
        tier = self.rows.tier[slot]
        threshold_ms = self.settings.aging_ms[tier]
        is_aging = self.rows.state[slot] in {WAITING, LEASED} and tier > 0 and threshold_ms > 0
        return is_aging and self.rows.since_ms[slot] + threshold_ms == at_ms

    def _revert_holds(self, at_ms: int, slot: int) -> bool:
        escalation = self.rows.escalations.get(slot)
        return escalation is not None and escalation.until_ms == at_ms

    def held_delays(self, timers: Iterable[Timer]) -> Iterator[Timer]:
        return (timer for timer in timers if self._delay_holds(*timer))

    def _held_aging(self, timers: Iterable[Timer]) -> Iterator[Timer]:
        return (timer for timer in timers if self._aging_holds(*timer))

    def held_reverts(self, timers: Iterable[Timer]) -> Iterator[Timer]:
        return (timer for timer in timers if self._revert_holds(*timer))

    # The next three, and `_lapse`, return for how many messages they did something.

    def _revert(self, slot: int, at_ms: int) -> int:
        if not self._revert_holds(at_ms, slot):
            return 0
        self.retier(slot, self.rows.escalations.pop(slot).tier, at_ms)
        return 1

    def _wake(self, slot: int, at_ms: int) -> int:
        if not self._delay_holds(at_ms, slot):
            return 0
        self.resting -= 1
        self._join_last(slot, at_ms)
        return 1

    def _age(self, slot: int, at_ms: int) -> int:
        if not self._aging_holds(at_ms, slot):
            return 0
        self.retier(slot, self.rows.tier[slot] - 1, at_ms)
        self.tally.promoted += 1
        return 1

    def restart_aging(self) -> None:
        """Set the timers of all rows again, after the thresholds have changed."""
        self.aging = Wheel()
        for slot, state in enumerate(self.rows.state):
            if state in {WAITING, LEASED}:
                self.time_aging(slot)

    def time_aging(self, slot: int) -> None:
        tier = self.rows.tier[slot]
        threshold_ms = self.settings.aging_ms[tier]
        if threshold_ms and tier:
            # After a change of settings an instant may have passed already; it comes at once.
            at_ms = self.rows.since_ms[slot] + threshold_ms
            if at_ms < self.now_ms:
                self.rows.since_ms[slot] = self.now_ms - threshold_ms
                at_ms = self.now_ms
            self.aging.add(at_ms, slot)
            self.aging.thin(len(self.rows), self._held_aging)
            self.soon(at_ms)

    # Runs.

    def _count_plain(self, tier: int, count: int) -> None:
        self.plain[tier] += count
        self.ready[tier] += count
        if count > 0 and self.groups.rotations[tier]:
            self.groups.name_ungrouped(tier)

    def add_runs(self, tiers: bytes, now_ms: int) -> None:
        """New messages of these tiers begin to wait."""
        lanes, plain, ready, rotations = self.lanes, self.plain, self.ready, self.groups.rotations
        left = len(tiers)
        # The tier of the first message is that of all, most of the time.
        tier = tiers[0] if tiers else 0
        while left:
            count = tiers.count(tier)
            if count:
                left -= count
                lanes[tier].extend(count, now_ms)
                plain[tier] += count
                ready[tier] += count
                if rotations[tier]:
                    self.groups.name_ungrouped(tier)
                threshold_ms = self.settings.aging_ms[tier]
                if threshold_ms and now_ms + threshold_ms < self.due_ms:
                    self.due_ms = now_ms + threshold_ms
            tier = tier + 1 if tier < TIERS - 1 else 0

    def add_numbered(self, lane: Lane, first: int, end: int, now_ms: int) -> None:
        """Numbers that were given out already begin to wait."""
        lane.date(first, end)
        lane.shelves[lane.tier].append(first, end)
        self._count_plain(lane.tier, end - first)
        threshold_ms = self.settings.aging_ms[lane.tier]
        if threshold_ms:
            self.soon(now_ms + threshold_ms)

    def take_run(self, lane: Lane, tier: int, first: int, end: int) -> list[Stretch]:
        """Numbers wait no longer, and the lease they may have come from forgets them."""
        self.plain[tier] -= end - first
        self.ready[tier] -= end - first
        taken = lane.shelves[tier].take(first, end)
        for stretch in taken:
            if stretch[3]:
                self.leases.forget_late(stretch[3], lane.tier, stretch[0], stretch[1])
        return taken

    def take_front(self, lane: Lane, tier: int, first: int, length: int) -> bool:
        """Take the front of a run that nothing has happened to, if that is what these numbers are."""
        shelf = lane.shelves[tier]
        front = shelf.runs[shelf.head]
        end = first + length
        if front[0] != first or front[1] < end or front[2] or front[3]:
            return False
        if front[1] == end:
            shelf.drop_front()
        else:
            front[0] = end
        shelf.count -= length
        self.plain[tier] -= length
        self.ready[tier] -= length
        return True

    def take_one(self, lane: Lane, number: int) -> tuple[Stretch, int]:
        """Take a number off its shelf, and return it as it lay, with its bit in the lease it came from."""
        tier = self.shelf_tier(lane, number)
        self._count_plain(tier, -1)
        (taken,) = lane.shelves[tier].take(number, number + 1)
        if not taken[3]:
            return taken, 0
        mask = self.leases.mask_of(taken[3] & 0xFFFF_FFFF, lane.tier, number, number + 1)
        return taken, mask.bit_length() - 1

    def shelf_tier(self, lane: Lane, number: int) -> int:
        """The tier on whose shelf a number of this lane lies, or -1."""
        return next((tier for tier in range(lane.tier, -1, -1) if lane.shelves[tier].holds(number)), -1)

    def make_row(self, lane: Lane, number: int, as_of_ms: int) -> int:
        """Turn a number of a run that is on no shelf any more into a row, of the tier it had aged to by then."""
        aging_ms = self.settings.aging_ms
        tier = lane.tier_at(number, as_of_ms, aging_ms)
        since_ms = lane.since_ms(number, tier, aging_ms)
        slot = self.rows.add(lane.tier, number, lane.sent_at_ms(number), 0)
        self.rows.tier[slot] = tier
        self.rows.since_ms[slot] = since_ms
        lane.undate(number, number + 1)
        return slot

    # Rows.

    def join(self, slot: int) -> None:
        """A row begins to wait, behind the others of its tier. In a FIFO group it is linked already."""
        rows, groups = self.rows, self.groups
        group, tier = rows.group[slot], rows.tier[slot]
        place = group * TIERS
        rows.state[slot] = WAITING
        self.ready[tier] += 1
        groups.visible[place + tier] += 1
        if groups.is_fifo and group:
            # Only its head, or a more urgent tier, changes what a group is to the others.
            if groups.heads[place] == slot or tier < groups.open_at[group] != NOWHERE:
                groups.refresh(group)
        else:
            groups.append(place + tier, slot)
            if group:
                if not groups.queued[place + tier]:
                    groups.name_in(group, tier)
            elif groups.rotations[tier]:
                groups.name_ungrouped(tier)
        if self.settings.aging_ms[tier]:
            self.time_aging(slot)

    def rejoin(self, slot: int) -> None:
        """A leased row waits again, in the place it had."""
        self._wait(slot)
        rows, groups = self.rows, self.groups
        group, tier = rows.group[slot], rows.tier[slot]
        if groups.is_ordered(group):
            groups.insert(group * TIERS, slot, rows.order)
            groups.refresh(group)
        else:
            groups.insert(group * TIERS + tier, slot, rows.since_ms)
            groups.name(group, tier)

    def _wait(self, slot: int) -> None:
        rows = self.rows
        rows.state[slot] = WAITING
        tier = rows.tier[slot]
        self.ready[tier] += 1
        self.groups.visible[rows.group[slot] * TIERS + tier] += 1

    def rest(self, slot: int, visible_at_ms: int) -> None:
        """A row that is in no place yet rests until its time. In a FIFO group it is linked already."""
        self.resting += 1
        self.rows.state[slot] = RESTING
        self.rows.visible_at_ms[slot] = visible_at_ms
        self.delays.add(visible_at_ms, slot)
        self.delays.thin(self.resting, self.held_delays)
        self.soon(visible_at_ms)

    def spend(self, slot: int) -> None:
        """A row that is in no place waits to be buried. In a FIFO group it is linked already."""
        self.rows.state[slot] = SPENT
        self.rows.since_ms[slot] = self.now_ms
        self.spent[slot] = None

    def link(self, slot: int) -> None:
        """Give a row its place in its group, if the group has places."""
        group = self.rows.group[slot]
        if self.groups.is_ordered(group):
            self.groups.insert(group * TIERS, slot, self.rows.order)

    def leave(self, slot: int) -> None:
        """A row leaves the place it is in, whichever that is, except a lease."""
        rows, groups = self.rows, self.groups
        state, group, tier = rows.state[slot], rows.group[slot], rows.tier[slot]
        assert state != LEASED
        if state == WAITING:
            self.ready[tier] -= 1
            groups.visible[group * TIERS + tier] -= 1
        elif state == RESTING:
            self.resting -= 1
        elif state == SPENT:
            del self.spent[slot]
        if rows.lease[slot]:
            self.leases.drop_late(rows.lease[slot] & 0xFFFF_FFFF, 1 << rows.bit[slot])
            rows.lease[slot] = 0
        if groups.is_ordered(group):
            groups.unlink(group * TIERS, slot)
            groups.refresh(group)
        elif state == WAITING:
            groups.unlink(group * TIERS + tier, slot)

    def lease_rows(self, slots: list[int], lease: int, bit: int, served_at: int) -> None:
        """Waiting rows are handed out by a tier, and their groups have had their turn."""
        rows, ready, leased_at_ms = self.rows, self.ready, self.leases.leased_at_ms[lease & 0xFFFF_FFFF]
        self.groups.hand_out(slots, served_at)
        tier_of, states, leases, bits, deliveries = rows.tier, rows.state, rows.lease, rows.bit, rows.deliveries
        last_leased_ms, served_tier = rows.last_leased_ms, rows.served_tier
        for own_bit, slot in enumerate(slots, bit):
            assert states[slot] == WAITING
            states[slot] = LEASED
            ready[tier_of[slot]] -= 1
            if leases[slot]:
                self.leases.drop_late(leases[slot] & 0xFFFF_FFFF, 1 << bits[slot])
            leases[slot] = lease
            bits[slot] = own_bit
            last_leased_ms[slot] = leased_at_ms
            served_tier[slot] = served_at
            delivered = deliveries[slot]
            if not delivered:
                rows.first_leased_ms[slot] = leased_at_ms
            if delivered < 0xFFFF:
                deliveries[slot] = delivered + 1

    def unhold(self, slot: int) -> None:
        """A leased row is held no longer. Its group opens when it has found its next place."""
        if self.rows.group[slot]:
            self.groups.let_go((slot,), self.now_ms)

    def settle_rows(self, slots: list[int], *, was_leased: bool = False) -> None:
        """Rows are done with. They are in a lease that forgets them, or in no place any more."""
        rows, lanes, lane_of, group_of = self.rows, self.lanes, self.rows.lane, self.rows.group
        ids = rows.dedup_ids
        if was_leased and self.groups.numbers:
            self.groups.let_go(slots, self.now_ms)
        for slot in slots:
            lanes[lane_of[slot]].live -= 1
            if ids and slot in ids:
                del self.dedup.live[ids.pop(slot)]
            group = group_of[slot]
            if group:
                self.groups.lose(group)
        rows.drop(slots)

    def retier(self, slot: int, tier: int, at_ms: int) -> None:
        """Move a row to another tier, in whatever place it is."""
        rows, groups = self.rows, self.groups
        group, before = rows.group[slot], rows.tier[slot]
        is_waiting = rows.state[slot] == WAITING
        if is_waiting and not groups.is_ordered(group):
            groups.unlink(group * TIERS + before, slot)
        rows.tier[slot] = tier
        rows.since_ms[slot] = at_ms
        if is_waiting:
            self.ready[before] -= 1
            groups.visible[group * TIERS + before] -= 1
            self.ready[tier] += 1
            groups.visible[group * TIERS + tier] += 1
            if groups.is_ordered(group):
                groups.refresh(group)
            else:
                groups.append(group * TIERS + tier, slot)
                groups.name(group, tier)
        if rows.state[slot] in {WAITING, LEASED}:
            self.time_aging(slot)

    # Leases.

    def _lapse(self, lease: int, at_ms: int, most: int = LEASE_MESSAGES_MAX) -> int:
        """Messages whose lease has ended are back at once, with the delivery counted."""
        slot = self.leases.find(lease)
        mask = self.leases.lapsed_mask(slot, at_ms) if slot >= 0 else 0
        if not mask:
            return 0
        cost = self._cost(lease, at_ms) if most < LEASE_MESSAGES_MAX else 0
        if cost > most:
            mask, cost = lowest_bits(mask, most), most
            self.leases.wheel.add(at_ms, lease)
        count = mask.bit_count()
        self.leased -= count
        self.tally.lapsed += count
        members = list(self.leases.members(slot, mask))
        self.leases.make_late(slot, mask)
        for part in members:
            if isinstance(part, int):
                self._lapse_row(part, at_ms)
            else:
                self._lapse_run(part, lease, at_ms)
        return cost

    def _lapse_run(self, part: RunPart, lease: int, at_ms: int) -> None:
        lane, (first, count, deliveries, first_leased_ms, served_tier) = self.lanes[part[0]], part[1:]
        is_over = is_spent(self.settings, deliveries, 0)
        if not is_over and not goes_back(self.settings, deliveries):
            stretch = [first, first + count, deliveries, lease, first_leased_ms, served_tier]
            for tier, put in lane.put_back(stretch, at_ms, self.settings.aging_ms):
                self._count_plain(tier, put)
            return
        mask = self.leases.mask_of(lease & 0xFFFF_FFFF, lane.tier, first, first + count)
        bit = (mask & -mask).bit_length() - 1
        last_leased_ms = self.leases.leased_at_ms[lease & 0xFFFF_FFFF]
        for number in range(first, first + count):
            # At one instant leases lapse before anything ages, and what is spent or goes back ages no more.
            slot = self.make_row(lane, number, at_ms - 1)
            self.rows.deliver(slot, deliveries, first_leased_ms, last_leased_ms, served_tier)
            self.rows.lease[slot] = lease
            self.rows.bit[slot] = bit + number - first
            if is_over:
                self.spend(slot)
            else:
                self._join_last(slot, at_ms)

    def _join_last(self, slot: int, at_ms: int) -> None:
        self.rows.since_ms[slot] = at_ms
        self.join(slot)

    def _lapse_row(self, slot: int, at_ms: int) -> None:
        self.unhold(slot)
        if is_spent(self.settings, self.rows.deliveries[slot], self.rows.deliveries_max[slot]):
            self.link(slot)
            self.spend(slot)
            if self.groups.is_ordered(self.rows.group[slot]):
                self.groups.refresh(self.rows.group[slot])
        elif goes_back(self.settings, self.rows.deliveries[slot]):
            self._join_last(slot, at_ms)
        else:
            self.rejoin(slot)

    # Looking up.

    def slot_of(self, lane: int, number: int) -> int:
        """The row of a message, or 0 if it is none."""
        return self.rows.index.get(key(lane, number), 0)
