"""Which tier is served next: start-time fair queuing with whole-number tags, in closed form.

Each tier t has a weight w(t). Its messages are served at virtual times that lie
``stride(t) = lcm(weights) / w(t)`` apart, so a tier of twice the weight comes up
twice as often:

    start(t) = max(finish(t), clock)       the tag of the tier's next message
    serve the ready tier with the least start, the more urgent one at a tie
    clock = start(t);  finish(t) = start(t) + stride(t)

A tier with nothing ready is not looked at: it costs nothing. When it returns it
starts at the clock, not at its old finish: it has banked nothing.

A large batch is not counted one by one. Of tier t, ``(v - start(t)) // stride(t) + 1``
messages have a tag up to v; the greatest v whose sum is within the batch is found
by halving, and only what is left over is dealt out in order. The answer is a
number for each tier, which SQL can carry out as well.

**Bound.** A message with p ahead of it in its tier is served within
``(p + 1) · W / w + 5`` messages, where W is the sum of all weights: its tag is at
most (p + 1) strides beyond the clock, and within that time tier j is served at
most (p + 1) · w(j) / w times, once more for the message it was at.

See: Goyal, Vin, Cheng, "Start-time Fair Queuing", SIGCOMM 1996.
"""

from collections.abc import Sequence
from math import lcm

TIERS = 5
NEVER = 1 << 200

# The distance of a tier that has nothing.
IDLE = -1

_EVERY = tuple(range(TIERS))
_ONE_BY_ONE_MAX = 24
_CYCLE_MAX = 512


class Shares:
    """The tags of one queue's tiers. `quotas` decides, `served` remembers."""

    __slots__ = ("weights", "is_strict", "strides", "clock", "finish", "cycle")

    def __init__(self, weights: Sequence[int], *, is_strict: bool = False) -> None:
        self.weights = tuple(weights)
        self.is_strict = is_strict
        whole = lcm(*weights)
        self.strides = tuple(whole // weight for weight in weights)
        self.clock = 0
        self.finish = [0] * TIERS
        # What was shared before, by how many were wanted and how far the tags were from the clock.
        self.cycle: dict[tuple[int, ...], list[int]] = {}

    def quotas(self, want: int, ready: Sequence[int]) -> list[int]:
        """Return how many of ``want`` messages each tier is to give, of what it has ready.

        >>> Shares((16, 8, 4, 2, 1)).quotas(31, [99] * 5)
        [16, 8, 4, 2, 1]
        >>> Shares((16, 8, 4, 2, 1)).quotas(31, [0, 0, 3, 0, 99])
        [0, 0, 3, 0, 28]
        """
        if self.is_strict:
            return _in_order(want, ready)
        if sum(ready) <= want:
            return list(ready)
        clock = self.clock
        starts = [
            (finish - clock if finish > clock else 0) if count else IDLE
            for finish, count in zip(self.finish, ready, strict=True)
        ]
        quotas = self._of_many(want, starts)
        # A tier that has less than its share gives all it has, and the others share the rest: their order among
        # themselves does not depend on it.
        short: list[int] = []
        while more := [tier for tier in _EVERY if quotas[tier] > ready[tier]]:
            for tier in more:
                starts[tier] = IDLE
                want -= ready[tier]
            short += more
            quotas = self._of_many(want, starts)
        if short:
            quotas = quotas.copy()
            for tier in short:
                quotas[tier] = ready[tier]
        return quotas

    def _of_many(self, want: int, starts: Sequence[int]) -> list[int]:
        """How ``want`` messages are shared by tiers that have more than enough, whose tags are so far from the clock.

        Tiers that always have something are served in a cycle as long as the sum of their weights. So the same
        distances come again and again, and what was dealt once is looked up.
        """
        key = (want, *starts)
        quotas = self.cycle.get(key)
        if quotas is None:
            if len(self.cycle) >= _CYCLE_MAX:
                self.cycle.clear()
            quotas = self.cycle[key] = self._share(want, starts)
        return quotas

    def _share(self, want: int, starts: Sequence[int]) -> list[int]:
        active = [tier for tier in range(TIERS) if starts[tier] != IDLE]
        quotas = [0] * TIERS
        ready = [0 if start == IDLE else want for start in starts]
        if len(active) == 1:
            quotas[active[0]] = want
        elif want <= _ONE_BY_ONE_MAX:
            self._deal(quotas, starts, want, ready)
        else:
            self._fill(quotas, starts, want, ready, active)
        return quotas

    def _deal(self, quotas: list[int], starts: Sequence[int], want: int, ready: Sequence[int]) -> None:
        """By the definition, one after the other: for a few this is quicker than halving."""
        tags = [start if count else NEVER for start, count in zip(starts, ready, strict=True)]
        strides = self.strides
        for _ in range(want):
            least = min(tags)
            tier = tags.index(least)
            quotas[tier] += 1
            tags[tier] = least + strides[tier] if quotas[tier] < ready[tier] else NEVER

    def _fill(
        self, quotas: list[int], starts: Sequence[int], want: int, ready: Sequence[int], active: Sequence[int]
    ) -> None:
        strides = self.strides
        columns = [(starts[tier], strides[tier], ready[tier]) for tier in active]
        low = min(start for start, _, _ in columns) - 1
        # One tier alone would reach `want` by then, and there is more than `want` ready.
        high = max(start + stride * min(want, count) for start, stride, count in columns)
        while high - low > 1:
            middle = (low + high) // 2
            if _due(columns, middle) <= want:
                low = middle
            else:
                high = middle
        for tier in active:
            if low >= starts[tier]:
                quotas[tier] = min((low - starts[tier]) // strides[tier] + 1, ready[tier])
        # The rest have the very next tag, so they come in the order of urgency.
        left = want - sum(quotas)
        for tier in active:
            is_next = starts[tier] + strides[tier] * quotas[tier] == high
            if left and is_next and quotas[tier] < ready[tier]:
                quotas[tier] += 1
                left -= 1

    def served(self, tier: int, count: int) -> None:
        """Remember that a tier gave ``count`` messages. The clock moves with `settle_clock`."""
        start = self.finish[tier]
        if start < self.clock:  # noqa: PLR1730 - on the way of every lease.
            start = self.clock
        self.finish[tier] = start + self.strides[tier] * count

    def settle_clock(self, tiers: Sequence[int]) -> None:
        """Move the clock to the latest start among the tiers just served."""
        for tier in tiers:
            latest = self.finish[tier] - self.strides[tier]
            if latest > self.clock:  # noqa: PLR1730 - on the way of every lease.
                self.clock = latest

    def served_alone(self, tier: int, count: int) -> None:
        """`served` and `settle_clock`, for a lease of one tier."""
        start = self.finish[tier]
        if start < self.clock:  # noqa: PLR1730 - on the way of every lease.
            start = self.clock
        stride = self.strides[tier]
        self.finish[tier] = start + stride * count
        self.clock = start + stride * (count - 1)

    def served_together(self, tiers: Sequence[int], counts: Sequence[int]) -> None:
        """`served` and `settle_clock`, for a lease of so many messages of these tiers; a tier may come twice."""
        finish, strides = self.finish, self.strides
        clock = latest = self.clock
        for tier, count in zip(tiers, counts, strict=True):
            start, stride = finish[tier], strides[tier]
            if start < clock:  # noqa: PLR1730 - on the way of every lease.
                start = clock
            finish[tier] = end = start + stride * count
            if end - stride > latest:  # noqa: PLR1730 - on the way of every lease.
                latest = end - stride
        self.clock = latest

    def bound(self, tier: int, ahead: int) -> int:
        """Within how many leased messages one with ``ahead`` before it in its tier is leased itself.

        >>> Shares((16, 8, 4, 2, 1)).bound(4, ahead=0)
        36
        """
        total = sum(self.weights)
        return -(-(ahead + 1) * total // self.weights[tier]) + TIERS

    def bounds(self, ready: Sequence[int]) -> list[int]:
        """Return the bound of each tier for a message behind all that are ready."""
        total = sum(self.weights)
        return [-(-(ahead + 1) * total // weight) + TIERS for ahead, weight in zip(ready, self.weights, strict=True)]


def _due(columns: Sequence[tuple[int, int, int]], clock: int) -> int:
    """How many messages have a tag up to ``clock``, of tiers with a start, a stride and so many ready."""
    return sum(min((clock - start) // stride + 1, count) for start, stride, count in columns if clock >= start)


def _in_order(want: int, ready: Sequence[int]) -> list[int]:
    quotas = [0] * TIERS
    for tier in range(TIERS):
        quotas[tier] = min(want, ready[tier])
        want -= quotas[tier]
    return quotas
