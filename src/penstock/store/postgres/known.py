"""What a process knows of a queue: its settings, and what it has learned by using it.

Settings are those of the database as they were read. Every verb says which version it
has, and is refused if there is a newer one; then the queue is read again.

The rest is this process's own, and may be wrong without harm:

- which tiers have something, and whose turn it is (`core.fairness`). A process shares
  what it leases fairly by itself, so all of them together do;
- below which number of a tier nothing waits any more, so that a lease does not walk
  over the remains of what was leased before (see `Bounds`);
- when something timed happens next. Others may have made it earlier, so the database
  is asked again after a while.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from penstock.core.fairness import Shares
from penstock.core.limits import BODY_BYTES_MAX
from penstock.core.meter import Meter
from penstock.core.names import dead_letters_of
from penstock.core.retry import backoff_ms
from penstock.core.settings import TIERS, History, QueueSettings
from penstock.store.postgres.columns import SENT_AS

# How long what others do may go unseen.
ASK_MS = 1_000
# How often a process forgets what it believes about places that nothing waits at.
FORGET_MS = 60_000
# After so many doublings every ceiling is reached.
_ATTEMPTS = 41
_HISTORY = {History.OFF: 0, History.FACTS: 1, History.FULL: 2}


class QueueRow(NamedTuple):
    """A queue as it stands in the database."""

    number: int
    name: str
    settings: str
    version: int
    grave: str
    created_at_ms: int


class Bounds:
    """The numbers at which a lease begins to look, by tier.

    Where messages were leased, PostgreSQL keeps what is left of them until no
    transaction can see it, which may be long. A lease that began at the first number
    would walk over all of that.

    A bound may rise to the first number a lease took only if no lower one can still
    appear. A send draws its numbers after it has a transaction id. So at the time of
    the lease whoever has drawn a lower number has an id below the snapshot's end; when
    a later lease sees no transaction running below that, all of them have ended, and
    the first number that this later lease finds is the lowest there is.

    What a lease that was rolled back puts back is not covered. It lies above where the
    bounds were when that lease began: so they step back, now and then and when a lease
    fails, to where they were before. Whoever finds nothing at all forgets them.
    """

    __slots__ = ("lowest", "stepped_at_ms", "_before", "_forgotten_at_ms", "_seen", "_ends")

    def __init__(self) -> None:
        self.lowest = [0] * TIERS
        self.stepped_at_ms = 0
        self._before = [0] * TIERS
        self._forgotten_at_ms = 0
        self._seen = [-1] * TIERS
        self._ends = [0] * TIERS

    def step_back(self, now_ms: int) -> None:
        self.lowest, self._before = self._before, self.lowest
        self._seen = [-1] * TIERS
        self.stepped_at_ms = now_ms

    def forget(self, now_ms: int) -> None:
        """Begin to look at the first number again, but not every time."""
        if now_ms - self._forgotten_at_ms >= FORGET_MS:
            self.lowest, self._before, self._seen = [0] * TIERS, [0] * TIERS, [-1] * TIERS
            self.stepped_at_ms = self._forgotten_at_ms = now_ms

    def learn(self, firsts: dict[int, int], xmin: int, xmax: int) -> None:
        """Note the first number that a lease took of each tier, and the transactions it saw."""
        for tier, first in firsts.items():
            if self._seen[tier] < 0:
                self._seen[tier], self._ends[tier] = first, xmax
            elif xmin >= self._ends[tier]:
                self.lowest[tier] = max(self.lowest[tier], min(self._seen[tier], first))
                self._seen[tier], self._ends[tier] = first, xmax


class KnownQueue:
    def __init__(self, row: QueueRow) -> None:
        self.gate = Gate()
        self.started = Meter()
        self.drained = Meter()
        self.bounds = Bounds()
        # The turn in which the ungrouped of each tier were served last.
        self.turns = [0] * TIERS
        self.are_groups_last = False
        # None until it is known what is leased already.
        self.shares: Shares | None = None
        self.active: Sequence[int] = ()
        self.due_ms = 0
        self.asked_at_ms = 0
        self.has_spent = False
        # How large a message was at the last lease; until one is known, as large as may be.
        self.mean_bytes = BODY_BYTES_MAX
        self.read(row)

    def read(self, row: QueueRow) -> None:
        """Take what the database says now."""
        self.number, self.name, self.version, self.grave = row.number, row.name, row.version, row.grave
        self.created_at_ms = row.created_at_ms
        self.settings = settings = QueueSettings.from_json(row.settings)
        self.aging_ms = list(settings.aging_ms)
        self.aging_column = SENT_AS["bigint[]"](self.aging_ms)
        # How long a message rests at most after so many deliveries; beyond the last, as after the last.
        certain = replace(settings, has_jitter=False)
        self.rests_ms = [backoff_ms(certain, attempt, roll=0.0) for attempt in range(1, _ATTEMPTS + 1)]
        self.history = _HISTORY[settings.history]
        self.due_ms = 0
        if self.shares is not None and (self.shares.weights, self.shares.is_strict) != (
            settings.weights,
            settings.is_strict,
        ):
            self.shares = Shares(settings.weights, is_strict=settings.is_strict)

    def begin_shares(self, leased: Sequence[tuple[int, int]]) -> Shares:
        """Go on from what is leased now, by tier, as if this process had done it."""
        self.shares = shares = Shares(self.settings.weights, is_strict=self.settings.is_strict)
        if leased:
            shares.served_together([tier for tier, _ in leased], [count for _, count in leased])
        return shares

    # Time.

    def is_due(self, now_ms: int) -> bool:
        return now_ms >= self.due_ms or now_ms - self.asked_at_ms >= ASK_MS

    def soon(self, at_ms: int) -> None:
        """Something timed happens at this instant."""
        self.due_ms = min(self.due_ms, at_ms)

    def asked(self, now_ms: int, next_ms: int | None, *, has_spent: bool) -> None:
        """Note what the database said about the time, and whether something waits to be buried."""
        self.asked_at_ms = now_ms
        self.has_spent = has_spent
        self.due_ms = 2**62 if next_ms is None else next_ms

    def lapsed_from_ms(self, now_ms: int) -> int:
        """After which instant a lease may have to end that has not been ended: those of before were looked at."""
        if now_ms - self.bounds.stepped_at_ms >= FORGET_MS or not self.asked_at_ms:
            self.bounds.step_back(now_ms)
            return -1
        return self.asked_at_ms - FORGET_MS

    def ages_at_ms(self, tiers: bytes, now_ms: int) -> None:
        for tier in set(tiers):
            if tier and self.aging_ms[tier]:
                self.soon(now_ms + self.aging_ms[tier])


def grave_of(name: str, settings: QueueSettings) -> str:
    return settings.dead_letters or dead_letters_of(name)


def rank(shares: Shares) -> list[int]:
    """Return the tiers in the order in which they are served next, as far as their tags go."""
    if shares.is_strict:
        return list(range(TIERS))
    return sorted(range(TIERS), key=lambda tier: (max(shares.finish[tier], shares.clock), tier))


class Gate:
    """Many work in a queue at once; who changes it waits for them, and they wait for it.

    This orders what one process does. Processes among each other are ordered by a lock
    in the database.
    """

    __slots__ = ("_inside", "_is_shut", "_changed")

    def __init__(self) -> None:
        self._inside = 0
        self._is_shut = False
        self._changed = asyncio.Condition()

    # On the way of every verb, so no context manager.

    async def enter(self) -> None:
        if self._is_shut:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._is_shut)
        self._inside += 1

    async def leave(self) -> None:
        self._inside -= 1
        if self._is_shut and not self._inside:
            await self._tell()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._is_shut)
            self._is_shut = True
            await self._changed.wait_for(lambda: not self._inside)
        try:
            yield
        finally:
            self._is_shut = False
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
