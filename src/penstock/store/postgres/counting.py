"""How much is in queues: one statement for any number of them, and as long for a million messages as for thousands.

    little    counted at each look
    much      counted behind those who ask, as long as somebody asks now and then, and the last count is answered

Each kind of messages of a queue (of a tier, leased, delayed and so on) is counted by itself, and is little up to
`COUNTED_MOST`. A store without upkeep has nobody who counts behind: whoever asks counts what is much, unless that was
done a moment ago.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import psycopg

from penstock.contract.messages import TIERS
from penstock.store.errors import StoreForbids, StoreUnreachable
from penstock.store.interface import Counts
from penstock.store.postgres.database import Database
from penstock.store.postgres.known import Kept, KnownQueue

# So many of a kind are counted at each look.
COUNTED_MOST = 2_000
# Up to so many in all are counted each time if nobody counts behind; to count a million takes a tenth of a second, and
# a larger count is kept for about ten times as long as it took.
COUNTED_EACH_TIME = 100_000
COUNTED_PER_MS = 1_000
# A count that is kept is made again after so long at the soonest, as long as somebody has asked within the minute.
AGAIN_S = 1.0
ASKED_MS = 60_000
# After each count a pause that is so many times as long: a twentieth of a connection at most goes into it.
_PAUSES = 19
_TROUBLE = (StoreUnreachable, StoreForbids, psycopg.Error)


class Seen(NamedTuple):
    """What `summaries.sql` says of a queue, behind its row; counts are up to `COUNTED_MOST`."""

    plain: Sequence[int]
    marked: Sequence[int]
    plain_sent_ms: Sequence[int | None]
    marked_sent_ms: Sequence[int | None]
    marked_since_ms: Sequence[int | None]
    leases: int
    leased: int
    delayed: int
    stuck: int
    stuck_since_ms: int | None
    is_due: bool
    noisy_groups: int
    noisy_ready: int
    noisy_leased: int

    def has_aged(self, known: KnownQueue, now_ms: int) -> bool:
        """Whether some have to move up to the next tier."""
        for tier, aging_ms in enumerate(known.aging_ms):
            firsts = (self.plain_sent_ms[tier], self.marked_since_ms[tier])
            if tier and aging_ms and any(first is not None and first + aging_ms <= now_ms for first in firsts):
                return True
        return False

    @property
    def is_much(self) -> bool:
        kinds = (*self.plain, *self.marked, self.leases, self.delayed, self.stuck, self.noisy_ready)
        return max(kinds) >= COUNTED_MOST

    def counts(self, kept: Kept) -> Counts:
        """What was counted just now where that is little, and what is kept where it is much."""
        ready = tuple(
            max(kept.ready[tier], self.plain[tier] + self.marked[tier])
            if max(self.plain[tier], self.marked[tier]) >= COUNTED_MOST
            else self.plain[tier] + self.marked[tier]
            for tier in range(TIERS)
        )
        return Counts(
            ready,
            self.leased if self.leases < COUNTED_MOST else max(kept.leased, self.leased),
            self.delayed if self.delayed < COUNTED_MOST else max(kept.delayed, self.delayed),
            tuple(map(_earlier, self.plain_sent_ms, self.marked_sent_ms)),
            self.stuck if self.stuck < COUNTED_MOST else max(kept.stuck, self.stuck),
            self.stuck_since_ms,
            self.noisy_groups,
            self.noisy_ready if self.noisy_ready < COUNTED_MOST else max(kept.noisy_ready, self.noisy_ready),
            self.noisy_leased,
        )


def _earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((at_ms for at_ms in (one_ms, other_ms) if at_ms is not None), default=None)


def _until_ms(kept: Kept) -> int:
    """How long a count is good where nobody counts behind."""
    count = sum(kept.ready)
    return kept.at_ms + (count // COUNTED_PER_MS if count > COUNTED_EACH_TIME else 0)


_NOTHING = Kept(0, (0,) * TIERS, 0, 0, 0, 0)


class Counting:
    def __init__(self, database: Database, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._now_ms = now_ms
        # Queues that hold much, of which somebody has asked, and when.
        self._asked_ms: dict[KnownQueue, int] = {}
        self._has_asked = asyncio.Event()
        self._is_running = False

    async def counts(self, known: KnownQueue, seen: Seen) -> Counts:
        if not seen.is_much:
            return seen.counts(_NOTHING)
        now_ms, kept = self._now_ms(), known.kept
        if kept is None or now_ms - kept.at_ms > ASKED_MS or (not self._is_running and now_ms >= _until_ms(kept)):
            kept = await self._count(known)
        self._asked_ms[known] = now_ms
        self._has_asked.set()
        return seen.counts(kept)

    async def _count(self, known: KnownQueue) -> Kept:
        now_ms = self._now_ms()
        ((ready, *others),) = await self._database.ask("counts", queue=known.number, now=now_ms)
        known.kept = Kept(now_ms, tuple(ready), *others)
        return known.kept

    async def run(self) -> None:
        """Count behind those who ask."""
        self._is_running = True
        while True:
            await self._has_asked.wait()
            self._has_asked.clear()
            while self._asked_ms:
                await self._count_all()
                await asyncio.sleep(AGAIN_S)

    async def _count_all(self) -> None:
        loop = asyncio.get_running_loop()
        for known, asked_ms in list(self._asked_ms.items()):
            if self._now_ms() - asked_ms > ASKED_MS:
                del self._asked_ms[known]
                continue
            began = loop.time()
            with suppress(*_TROUBLE):
                await self._count(known)
            await asyncio.sleep(_PAUSES * (loop.time() - began))
