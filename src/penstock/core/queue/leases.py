"""Leases: who holds what, until when.

A lease is a run of numbers with a bitmap of what is still held, one random token
and a deadline. It lives in a slot of columns, so that thirty million messages out
in leases of ten are three million slots of some sixty bytes and no objects at all.
Its id is the slot and how often the slot has been used: an old id is known to be
old without remembering it.

A lease of several runs, or of rows, has its *parts* beside the columns: a run is
``(lane, first, count, deliveries, first_leased_ms, served_tier)``, a row its slot.
Bit i of the bitmap is the i-th message in the order of the parts.

When a lease lapses, its bits move from *held* to *late*. A late bit says that the
message has been neither leased again nor settled since: by the rule of AWS the
receipt would still be good. It takes part in nothing else.

A deadline may differ for some of the messages, when only they were extended.

An ack by id asks which lease holds a number. The first one has an index made,
a part at a time if there are many leases, which is kept from then on; before that it costs nothing.
"""

from array import array
from collections.abc import Iterable, Iterator
from itertools import compress, count, repeat
from operator import lshift, or_
from typing import NamedTuple, TypeAlias

from penstock.core.queue.timer_wheel import Wheel

# lane, first, count, deliveries, first_leased_ms, served_tier
RunPart: TypeAlias = tuple[int, int, int, int, int, int]
Part: TypeAlias = RunPart | int

_SLOT = 0xFFFF_FFFF
_ALL = 1 << 62
_STRETCH_BITS = 6
STRETCH = 1 << _STRETCH_BITS
_FULL_MAX = 1_024
_FULL = tuple((1 << count) - 1 for count in range(_FULL_MAX + 1))


def _stretch(lane: int, number: int) -> int:
    """Numbers of a lane, some at a time: few enough leases to look through."""
    return number >> _STRETCH_BITS << 3 | lane


class Deadline(NamedTuple):
    """Until when some messages of a lease are held, and how long they were asked for."""

    mask: int
    until_ms: int
    lease_ms: int


class Leases:
    __slots__ = (
        "token",
        "until_ms",
        "lease_ms",
        "leased_at_ms",
        "served_tier",
        "lane",
        "first",
        "count",
        "deliveries",
        "uses",
        "held",
        "late",
        "parts",
        "first_leased_ms",
        "deadlines",
        "free",
        "wheel",
        "live",
        "index",
        "indexed",
    )

    def __init__(self) -> None:
        self.token = array("Q")
        # Of those messages that have no deadline of their own. -1 when the slot is free.
        self.until_ms = array("q")
        self.lease_ms = array("Q")
        # Neither an extension nor another process moves it.
        self.leased_at_ms = array("q")
        # This and the next four are for leases of one run.
        self.served_tier = array("B")
        self.lane = array("B")
        self.first = array("Q")
        self.count = array("I")
        self.deliveries = array("H")
        self.uses = array("I")
        self.held: list[int] = []
        self.late: dict[int, int] = {}
        self.parts: dict[int, list[Part]] = {}
        # Of leases of one run that was leased before; of others it is `leased_at_ms`.
        self.first_leased_ms: dict[int, int] = {}
        self.deadlines: dict[int, list[Deadline]] = {}
        self.free: list[int] = []
        self.wheel = Wheel()
        # Leases that hold anything.
        self.live = 0
        # The slots that have numbers of a stretch of a lane, by `_stretch`; None until it is asked who holds a number.
        self.index: dict[int, list[int]] | None = None
        # Slots below this one are in it.
        self.indexed = 0

    def next_id(self) -> int:
        if self.free:
            slot = self.free[-1]
            return self.uses[slot] << 32 | slot
        return 1 << 32 | len(self.token)

    def open(self, lease: int, token: int, count: int, until_ms: int, lease_ms: int) -> int:
        """Take the slot that `next_id` named, and return it."""
        slot = lease & _SLOT
        held = _FULL[count] if count <= _FULL_MAX else (1 << count) - 1
        self.live += 1
        free = self.free
        if free:
            assert free[-1] == slot
            free.pop()
            self.token[slot] = token
            self.until_ms[slot] = until_ms
            self.lease_ms[slot] = lease_ms
            self.leased_at_ms[slot] = until_ms - lease_ms
            self.count[slot] = count
            self.held[slot] = held
        else:
            assert slot == len(self.held)
            self._grow(token, until_ms, lease_ms, count, held)
        wheel = self.wheel
        wheel.add(until_ms, lease)
        if wheel.count >= wheel.thin_at:
            wheel.thin(self.live, self.held_timers)
        return slot

    def _grow(self, token: int, until_ms: int, lease_ms: int, count: int, held: int) -> None:
        self.token.append(token)
        self.until_ms.append(until_ms)
        self.lease_ms.append(lease_ms)
        self.leased_at_ms.append(until_ms - lease_ms)
        self.served_tier.append(0)
        self.count.append(count)
        self.held.append(held)
        self.uses.append(1)
        self.lane.append(0)
        self.first.append(0)
        self.deliveries.append(0)

    def holder_of(self, lane: int, number: int) -> tuple[int, RunPart] | None:
        """Return the slot that holds a number which is no row, and what it is a part of there."""
        for slot in self._indexed().get(_stretch(lane, number), ()):
            for part in self.members(slot, self.held[slot]) if self.held[slot] else ():
                if not isinstance(part, int) and part[0] == lane and part[1] <= number < part[1] + part[2]:
                    return slot, part
        return None

    def make_index(self, most: int) -> bool:
        """Put so many more slots into the index, and return whether all are in it."""
        if self.index is None:
            self.index = {}
        if self.indexed < _ALL:
            first, end = self.indexed, min(self.indexed + most, len(self.held))
            self.indexed = _ALL if end == len(self.held) else end
            for slot in range(first, end):
                if self.until_ms[slot] >= 0:
                    self.note(slot)
        return self.indexed == _ALL

    def _indexed(self) -> dict[int, list[int]]:
        while not self.make_index(_ALL):
            pass
        assert self.index is not None
        return self.index

    def slots_of(self, lane: int, first: int, end: int) -> Iterator[tuple[int, list[int]]]:
        """Yield the slots of leases that have, or had, some of these numbers, by stretches."""
        index = self._indexed()
        for stretch in range(_stretch(lane, first), _stretch(lane, end - 1) + 1, 8):
            if slots := index.get(stretch):
                yield stretch >> 3 << _STRETCH_BITS, slots

    def first_leased(self, lane: int, first: int, *, default: int, most: int) -> Iterator[int]:
        """Look for the number of a lane from which on the next leased one may be found, ``most`` stretches at a time.

        After each part the lowest one so far is yielded. What is leased meanwhile is not looked for.
        """
        lowest, stretches = _stretch(lane, first), list(self._indexed())
        for at in range(0, len(stretches), most):
            there = (each for each in stretches[at : at + most] if each & 7 == lane and each >= lowest)
            default = min(default, max(first, min(there, default=_ALL) >> 3 << _STRETCH_BITS))
            yield default

    def note(self, slot: int) -> None:
        """Let a lease be found by its numbers."""
        if self.index is not None and slot < self.indexed:
            for stretch in self._stretches(slot):
                self.index.setdefault(stretch, []).append(slot)

    def _forget(self, slot: int) -> None:
        assert self.index is not None
        for stretch in self._stretches(slot):
            slots = self.index.get(stretch, [])
            if slot in slots:
                slots.remove(slot)
            if not slots:
                self.index.pop(stretch, None)

    def _stretches(self, slot: int) -> set[int]:
        return {
            stretch
            for part in self.parts.get(slot) or (self.run(slot),)
            if not isinstance(part, int)
            for stretch in range(_stretch(part[0], part[1]), _stretch(part[0], part[1] + part[2] - 1) + 1, 8)
        }

    def close(self, slot: int) -> None:
        """Free a slot that holds nothing any more, and is late with nothing."""
        if self.index is not None:
            self._forget(slot)
        self.until_ms[slot] = -1
        # An id is its slot and its uses, so the uses must never come round to an id that is in use.
        self.uses[slot] = (self.uses[slot] + 1) & _SLOT or 1
        if self.parts:
            self.parts.pop(slot, None)
        if self.first_leased_ms:
            self.first_leased_ms.pop(slot, None)
        if self.deadlines:
            self.deadlines.pop(slot, None)
        self.free.append(slot)

    def find(self, lease: int) -> int:
        """The slot of a lease, or -1 if there is no such lease any more."""
        slot = lease & _SLOT
        if slot < len(self.held) and self.uses[slot] == lease >> 32 and self.until_ms[slot] >= 0:
            return slot
        return -1

    def id(self, slot: int) -> int:
        return self.uses[slot] << 32 | slot

    def drop_held(self, slot: int, mask: int) -> None:
        """Messages are held no longer; the slot goes when nothing is left of it."""
        held = self.held[slot] = self.held[slot] & ~mask
        if held:
            return
        self.live -= 1
        if slot not in self.late:
            self.close(slot)

    def end(self, slot: int) -> None:
        """All messages of a lease are held no longer."""
        self.held[slot] = 0
        self.live -= 1
        if slot not in self.late:
            self.close(slot)

    def make_late(self, slot: int, mask: int) -> None:
        """Messages have lapsed: held no longer, and late until they are leased again."""
        self.late[slot] = self.late.get(slot, 0) | mask
        self.held[slot] &= ~mask
        if not self.held[slot]:
            self.live -= 1

    def drop_late(self, slot: int, mask: int) -> None:
        left = self.late[slot] & ~mask
        if left:
            self.late[slot] = left
            return
        del self.late[slot]
        if not self.held[slot]:
            self.close(slot)

    def forget_late(self, lease: int, lane: int, first: int, end: int) -> None:
        """Numbers of a run that came back from this lease are waiting no longer."""
        slot = lease & _SLOT
        self.drop_late(slot, self.mask_of(slot, lane, first, end))

    def mask_of(self, slot: int, lane: int, first: int, end: int) -> int:
        """The bits of the numbers of a run, which may be in several parts."""
        if slot not in self.parts:
            return ((1 << (end - first)) - 1) << (first - self.first[slot])
        mask = bit = 0
        for part in self.parts[slot]:
            if isinstance(part, int):
                bit += 1
                continue
            low, high = max(first, part[1]), min(end, part[1] + part[2])
            if part[0] == lane and low < high:
                mask |= ((1 << (high - low)) - 1) << (bit + low - part[1])
            bit += part[2]
        return mask

    def members(self, slot: int, mask: int) -> Iterator[Part]:
        """The messages of some bits, as runs and rows, in order."""
        for part in self.parts.get(slot) or (self.run(slot),):
            if isinstance(part, int):
                if mask & 1:
                    yield part
                mask >>= 1
                continue
            lane, first, count, *past = part
            for start, length in bit_runs(mask & ((1 << count) - 1)):
                yield (lane, first + start, length, *past)  # type: ignore[misc]
            mask >>= count

    def each(self, slot: int, mask: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """The messages of some bits one by one: the bit, and the lane, number and 0, or 0, 0 and the row."""
        bit = 0
        for part in self.parts.get(slot) or (self.run(slot),):
            count = 1 if isinstance(part, int) else part[2]
            for start, length in bit_runs(mask >> bit & ((1 << count) - 1)):
                for at in range(start, start + length):
                    yield bit + at, (0, 0, part) if isinstance(part, int) else (part[0], part[1] + at, 0)
            bit += count

    def loosen(self, slot: int, lane: int, number: int, row: int) -> None:
        """A message of a run became a row while its lease was late."""
        parts: list[Part] = []
        for part in self.parts.get(slot) or [self.run(slot)]:
            if isinstance(part, int) or part[0] != lane or not part[1] <= number < part[1] + part[2]:
                parts.append(part)
                continue
            _, first, count, *past = part
            before, after = number - first, first + count - number - 1
            if before:
                parts.append((lane, first, before, *past))  # type: ignore[arg-type]
            parts.append(row)
            if after:
                parts.append((lane, number + 1, after, *past))  # type: ignore[arg-type]
        self.parts[slot] = parts

    def run(self, slot: int) -> RunPart:
        """What a lease without parts is of."""
        first_leased_ms = self.first_leased_ms.get(slot) or self.leased_at_ms[slot]
        numbers = self.lane[slot], self.first[slot], self.count[slot]
        return *numbers, self.deliveries[slot], first_leased_ms, self.served_tier[slot]

    def lapsed_mask(self, slot: int, now_ms: int) -> int:
        """Which held messages have reached their deadline."""
        held = self.held[slot]
        due = 0
        for mask, until_ms, _ in self.deadlines.get(slot, ()):
            held &= ~mask
            if until_ms <= now_ms:
                due |= mask
        if self.until_ms[slot] <= now_ms:
            due |= held
        return due & self.held[slot]

    def extend(self, slot: int, mask: int, *, until_ms: int, lease_ms: int) -> None:
        self.wheel.add(until_ms, self.id(slot))
        rest = self.held[slot] & ~mask
        others = [
            Deadline(other.mask & rest, other.until_ms, other.lease_ms)
            for other in self.deadlines.pop(slot, ())
            if other.mask & rest
        ]
        for other in others:
            rest &= ~other.mask
        if rest:
            others.append(Deadline(mask, until_ms, lease_ms))
        else:
            self.until_ms[slot] = until_ms
            self.lease_ms[slot] = lease_ms
        if others:
            self.deadlines[slot] = others

    def rearm(self, now_ms: int) -> None:
        """Start every lease again at its full length."""
        for slot in compress(count(), self.held):
            self.until_ms[slot] = now_ms + self.lease_ms[slot]
        for slot, deadlines in self.deadlines.items():
            if self.held[slot]:
                self.deadlines[slot] = [Deadline(mask, now_ms + lease_ms, lease_ms) for mask, _, lease_ms in deadlines]
        self.set_timers()

    def set_timers(self) -> None:
        """Set the timers of all leases that hold anything, and no others."""
        self.wheel = Wheel()
        # As C loops: there may be millions.
        ids = map(or_, map(lshift, compress(self.uses, self.held), repeat(32)), compress(count(), self.held))
        self.wheel.fill(compress(self.until_ms, self.held), ids)
        for slot, deadlines in self.deadlines.items():
            if self.held[slot]:
                for deadline in deadlines:
                    self.wheel.add(deadline.until_ms, self.id(slot))

    def held_timers(self, timers: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those timers that still hold."""
        until, uses, held = self.until_ms, self.uses, self.held
        found: list[tuple[int, int]] = []
        for at_ms, lease in timers:
            slot = lease & _SLOT
            if uses[slot] != lease >> 32 or not held[slot]:
                continue
            if until[slot] == at_ms or any(other.until_ms == at_ms for other in self.deadlines.get(slot, ())):
                found.append((at_ms, lease))
        return found

    def bit_of(self, lease: int, row: int, message: int) -> int:
        """The bit of a message that this lease holds, as a mask."""
        slot = lease & _SLOT
        if row:
            bit = 0
            for part in self.parts.get(slot, ()):
                if part == row:
                    break
                bit += 1 if isinstance(part, int) else part[2]
            return 1 << bit
        number = message >> 3
        return self.mask_of(slot, message & 7, number, number + 1)

    def deadline_ms(self, lease: int, mask: int) -> int:
        """Until when one message of a lease is held."""
        slot = lease & _SLOT
        own = [deadline.until_ms for deadline in self.deadlines.get(slot, ()) if deadline.mask & mask]
        return own[0] if own else self.until_ms[slot]


def bit_runs(mask: int) -> Iterator[tuple[int, int]]:
    """Where the ones of a bitmap begin, and how many there are in a row.

    >>> list(bit_runs(0b1101110))
    [(1, 3), (5, 2)]
    """
    start = 0
    while mask:
        zeros = (mask & -mask).bit_length() - 1
        mask >>= zeros
        start += zeros
        ones = (~mask & (mask + 1)).bit_length() - 1
        yield start, ones
        mask >>= ones
        start += ones


def lowest_bits(mask: int, count: int) -> int:
    """The lowest ones of a bitmap that has more than these.

    >>> bin(lowest_bits(0b1101110, 4))
    '0b101110'
    """
    found = 0
    for start, length in bit_runs(mask):
        taken = min(length, count)
        found |= ((1 << taken) - 1) << start
        count -= taken
        if not count:
            break
    return found
