"""The queues that a process knows: their settings, and what it has learned by using them.

Settings are cached as they were read. A verb is given the cached queue and sends its version; if the database has a
newer one it refuses the call, which has then changed nothing, and the queue is read and the verb made again.

The rest belongs to this process, and may be wrong without harm:

- which tiers have messages, and whose turn is next (`core.queue.fairness`). Each process shares
  what it leases fairly by itself, so all of them together do;
- the number of each tier, and the turn, below which nothing waits any more, so that a lease does
  not walk over dead index entries (see `LeaseStart` and `GroupLeaseStart`);
- when the next timed event happens. Others may have made it earlier, so the database is asked
  again after a while.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import psycopg

from penstock.contract.limits import BODY_BYTES_MAX
from penstock.contract.messages import TIERS
from penstock.contract.names import dead_letters_of, is_name
from penstock.contract.queue_settings import History, QueueSettings
from penstock.core.queue.events import Tally
from penstock.core.queue.fairness import Shares
from penstock.core.queue.rate_meter import Meter
from penstock.core.queue.retry import backoff_ms
from penstock.store.errors import QueueNotFound
from penstock.store.postgres.array_codec import SENT_AS
from penstock.store.postgres.database import Database

# How long changes by others may go unnoticed.
ASK_MS = 1_000
# How late others may see a lease whose end has come: its commit may have taken a while. And longer, now and then.
LATE_MS = 2_000
LATER_MS = 60_000
# What `advance` says is next if there is more to do than one call does.
MORE_MS = 0
# How soon to look again at what is due while another transaction holds it.
HELD_MS = 100
_NEVER_MS = 2**62
# How often a process forgets what it believes about places that nothing waits at: with a snapshot held open it may take
# seconds to look at all of them.
FORGET_MS = 600_000
# Queues that are looked at by one statement, and those that are made known in one step.
QUEUES_AT_ONCE = 500
_NOTED_AT_ONCE = 25
# After so many doublings every ceiling is reached.
_ATTEMPTS = 41
_HISTORY = {History.OFF: 0, History.FACTS: 1, History.FULL: 2}


class QueueRow(NamedTuple):
    """A queue as it stands in the database."""

    number: int
    name: str
    # None if they are of a version that is known.
    settings: str | None
    version: int
    grave: str
    created_at_ms: int


class LeaseStart:
    """The numbers at which a lease begins to look, by tier.

    Where messages were leased, PostgreSQL keeps what is left of them until no
    transaction can see it, which may be long. A lease that began at the first number
    would walk over all of that.

    A bound may rise to the first number that is left only if no lower one can still
    appear. A send draws its numbers after it has a transaction id. So when a lease looks,
    every drawer of a lower number has an id below the end of its snapshot; when a later
    lease sees no transaction running below that, all of them have ended, and the first
    number that this later lease finds is the lowest there is.

    What is left is looked for as others see it, with what a running lease has taken and
    may put back. So nothing ever appears below a bound, but in another life of the
    database: bounds are forgotten when a call fails, and now and then when nothing is found.
    """

    __slots__ = ("lowest", "_seen", "_ends")

    def __init__(self) -> None:
        self.lowest = [0] * TIERS
        self._seen = [-1] * TIERS
        self._ends = [0] * TIERS

    def forget(self) -> None:
        self.lowest, self._seen = [0] * TIERS, [-1] * TIERS

    def learn(self, lefts: dict[int, int], xmin: int, xmax: int) -> None:
        """Note the first number that a lease left of each tier, and what ran: `xmin` before it looked, `xmax` after."""
        for tier, left in lefts.items():
            if self._seen[tier] < 0:
                self._seen[tier], self._ends[tier] = left, xmax
            elif xmin >= self._ends[tier]:
                self.lowest[tier] = max(self.lowest[tier], min(self._seen[tier], left))
                self._seen[tier], self._ends[tier] = left, xmax


class GroupLeaseStart:
    """The turns at which a lease begins to look for messages of groups, by tier.

    What comes to wait gets a turn that is not before the floor of its tier, which is in the
    database and only rises: a lease raises it to the turn that is served next. It is read
    by transactions that have an id already. So a transaction that has not seen a floor has an id
    below the end of a snapshot that was taken after it was raised. When a later lease sees
    no transaction running below that, all of them have ended: nothing comes before that
    floor any more, and nothing is before the first turn that this later lease finds. The
    bound may rise to the lower of the two.

    That first turn is looked for as others would see it, with what a running lease has
    taken and may put back. Now and then, when nothing is found, bounds are forgotten all the
    same: should any way into a queue not keep to the floor, its message is late and not lost.
    """

    __slots__ = ("lowest", "_floors", "_end")

    def __init__(self) -> None:
        self.lowest = [0] * TIERS
        self._floors = [0] * TIERS
        self._end = -1

    def forget(self) -> None:
        self.lowest = [0] * TIERS

    def learn(self, firsts: Sequence[int | None], floors: Sequence[int], xmin: int, xmax: int) -> None:
        """Note the first turns a lease found, the floors after it, and what ran: `xmin` before, `xmax` after both."""
        if any(floor < lowest for floor, lowest in zip(floors, self.lowest, strict=True)):
            # Another life of the database, in which less has happened.
            self.forget()
        elif 0 <= self._end <= xmin:
            lasts = [
                floor if first is None else min(floor, first) for floor, first in zip(self._floors, firsts, strict=True)
            ]
            self.lowest = list(map(max, self.lowest, lasts))
        elif self._end >= 0:
            return
        self._floors, self._end = list(floors), xmax


class KeptCounts(NamedTuple):
    """How much was in a queue, and when."""

    at_ms: int
    ready: tuple[int, ...]
    leased: int
    delayed: int
    stuck: int
    noisy_ready: int


class CachedQueue:
    def __init__(self, row: QueueRow) -> None:
        self.gate = SharedLock()
        self.started = Meter()
        self.drained = Meter()
        self.bounds = LeaseStart()
        self.turn_bounds = GroupLeaseStart()
        # Whether others than plain messages waited at the last lease.
        self.are_marked = False
        # The turn in which the ungrouped of each tier were served last.
        self.turns = [0] * TIERS
        self.are_groups_last = False
        # None until it is known what is leased already.
        self.shares: Shares | None = None
        self.active: Sequence[int] = ()
        self.due_ms = 0
        self.asked_at_ms = 0
        # Leases due by then have ended, except those whose commit becomes visible too late.
        self.looked_until_ms = -1
        # Whether something is due that others hold, as two looks have left it; and what the last one left.
        self.is_held = False
        self._left_ms: int | None = None
        self._looked_back_at_ms = 0
        self._looked_at_all_ms = 0
        self._forgot_at_ms = 0
        self.has_spent = False
        # How much was in it when that was last counted out; None if that was never needed.
        self.kept: KeptCounts | None = None
        # How many messages came from elsewhere, and until when that is not counted again.
        self.moved_here = 0
        self.moved_here_until_ms = 0
        # How large a message was at the last lease; until one is known, as large as may be.
        self.mean_bytes = BODY_BYTES_MAX
        self.read(row)

    def read(self, row: QueueRow) -> None:
        """Take what the database says now."""
        self.number, self.name, self.version, self.grave = row.number, row.name, row.version, row.grave
        self.created_at_ms = row.created_at_ms
        assert row.settings is not None
        self.settings, self.rests_ms = _parsed(row.settings)
        settings = self.settings
        self.aging_ms = list(settings.aging_ms)
        self.aging_column = SENT_AS["bigint[]"](self.aging_ms)
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

    def forgets(self, now_ms: int) -> bool:
        """Forget where a lease begins to look if nothing was found there, but not often; say whether it did."""
        self._forgot_at_ms = self._forgot_at_ms or now_ms
        if now_ms - self._forgot_at_ms < FORGET_MS or not any(self.bounds.lowest + self.turn_bounds.lowest):
            return False
        self._forgot_at_ms = now_ms
        self.bounds.forget()
        self.turn_bounds.forget()
        return True

    # Time.

    def is_due(self, now_ms: int) -> bool:
        return now_ms >= self.due_ms or now_ms - self.asked_at_ms >= ASK_MS

    def soon(self, at_ms: int) -> None:
        """Something timed happens at this instant."""
        self.due_ms = min(self.due_ms, at_ms)

    def asked(self, now_ms: int, next_ms: int | None, *, from_ms: int, has_spent: bool) -> None:
        """Note what the database said about the time, and whether something waits to be buried.

        It looked at leases that were to end after ``from_ms``. What it had to leave is looked at again.
        """
        self.asked_at_ms = now_ms
        self.has_spent = has_spent
        left_ms = None if next_ms is None or next_ms > now_ms else next_ms
        # What one look does may make more due, which the next one does.
        self.is_held = left_ms not in {None, MORE_MS} and left_ms == self._left_ms
        self._left_ms = left_ms
        if left_ms is not None:
            self.looked_until_ms = min(self.looked_until_ms, from_ms if left_ms == MORE_MS else left_ms - 1)
        else:
            self._looked(now_ms, from_ms)
        if self.is_held:
            # Not at each lease: the holder may take minutes.
            self.due_ms = now_ms + HELD_MS
        else:
            self.due_ms = _NEVER_MS if next_ms is None else next_ms

    def looks_from_ms(self, now_ms: int) -> int:
        """After which instant a lease may have to end that has not been ended: those of before were looked at."""
        if now_ms - self._looked_at_all_ms >= FORGET_MS or not self.asked_at_ms:
            return -1
        if now_ms - self._looked_back_at_ms >= LATER_MS:
            return min(self.looked_until_ms, now_ms - LATER_MS)
        return self.looked_until_ms

    def lapsed_from_ms(self, now_ms: int) -> int:
        """As `looks_from_ms`, for a look that is made now: what is looked at now and then counts as looked at."""
        from_ms = self.looks_from_ms(now_ms)
        if from_ms == -1:
            self._looked_at_all_ms = now_ms
        elif now_ms - self._looked_back_at_ms >= LATER_MS:
            self._looked_back_at_ms = now_ms
        return from_ms

    def nothing_was_due(self, now_ms: int, *, from_ms: int) -> None:
        """Note that at this instant nothing was due in the database, and no lease that was to end after ``from_ms``."""
        self.lapsed_from_ms(now_ms)
        self.asked_at_ms = now_ms
        self._looked(now_ms, from_ms)

    def _looked(self, now_ms: int, from_ms: int) -> None:
        # Another look may have left something before this one began.
        if from_ms <= self.looked_until_ms:
            self.looked_until_ms = max(self.looked_until_ms, now_ms - LATE_MS)

    def ages_at_ms(self, tiers: bytes, now_ms: int) -> None:
        for tier in set(tiers):
            if tier and self.aging_ms[tier]:
                self.soon(now_ms + self.aging_ms[tier])


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> tuple[QueueSettings, list[int]]:
    """Return settings, and how long a message rests at most after each number of deliveries; the last counts for more.

    Many queues have the same ones, and thousands of queues are read when a server begins.
    """
    # A server of the next version may have written it, which runs beside this one while they are replaced.
    settings = QueueSettings.from_json(text, may_be_newer=True)
    certain = replace(settings, has_jitter=False)
    return settings, [backoff_ms(certain, attempt, roll=0.0) for attempt in range(1, _ATTEMPTS + 1)]


def dead_letter_queue_of(name: str, settings: QueueSettings) -> str:
    return settings.dead_letters or dead_letters_of(name)


def rank(shares: Shares) -> list[int]:
    """Return the tiers in the order in which they are served next, as far as their tags go."""
    if shares.is_strict:
        return list(range(TIERS))
    return sorted(range(TIERS), key=lambda tier: (max(shares.finish[tier], shares.clock), tier))


class SharedLock:
    """Many verbs work in a queue at once; a change waits for them, and they wait for it.

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


T = TypeVar("T")

CHANGED = "PS001"


class QueueCache:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, CachedQueue] = {}
        # What this process has counted in queues, by their numbers.
        self._tallies: dict[int, Tally] = {}
        # Names that are being given or taken away by this process.
        self._in_doubt: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def tally(self, number: int) -> Tally:
        """Return where to count what happens in a queue."""
        return self._tallies.setdefault(number, Tally())

    def tally_of(self, name: str) -> Tally | None:
        known = self._known.get(name)
        return None if known is None else self._tallies.get(known.number)

    @property
    def all(self) -> list[CachedQueue]:
        return list(self._known.values())

    async def find(self, name: str, *, is_fresh: bool = False) -> CachedQueue | None:
        """Return a queue, as it was when it was read last; None if there is none."""
        if not is_name(name):
            # PostgreSQL would not even take every text as one to look for.
            return None
        lock = self._in_doubt.get(name)
        if lock is not None:
            async with lock:
                pass
        known = self._known.get(name)
        if known is not None and not is_fresh:
            return known
        rows = await self._database.ask("queue_by_name", name)
        if not rows:
            self._known.pop(name, None)
            return None
        return self.note(QueueRow(*rows[0]))

    async def settled(self, names: Sequence[str]) -> list[tuple[str, int]]:
        """Return valid names with their known versions, after this process has finished creating or deleting them."""
        found = []
        for name in filter(is_name, names):
            lock = self._in_doubt.get(name)
            if lock is not None:
                async with lock:
                    pass
            known = self._known.get(name)
            found.append((name, -1 if known is None else known.version))
        return found

    def looked_until_ms(self, name: str) -> int:
        """Leases that were to end by then have ended."""
        known = self._known.get(name)
        return -1 if known is None else known.looked_until_ms

    def note(self, row: QueueRow) -> CachedQueue:
        known = self._known.get(row.name)
        if known is None or known.number != row.number:
            known = self._known[row.name] = CachedQueue(row)
        elif known.version != row.version:
            known.read(row)
        return known

    async def get(self, name: str, *, is_fresh: bool = False) -> CachedQueue:
        known = await self.find(name, is_fresh=is_fresh)
        if known is None:
            raise QueueNotFound(f"there is no queue {name!r}")
        return known

    async def reload(self, known: CachedQueue) -> None:
        """Read again what this process has just changed."""
        await self.find(known.name, is_fresh=True)

    async def check(self, known: CachedQueue) -> None:
        """Look whether a queue is as it was when it was read; raises `QueueNotFound` if it is gone."""
        await self.get(known.name, is_fresh=True)

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    @asynccontextmanager
    async def doubt(self, *names: str) -> AsyncIterator[None]:
        """Make lookups of these names wait until their creation or deletion is decided."""
        async with AsyncExitStack() as stack:
            for name in sorted(names):
                lock = self._in_doubt.get(name)
                if lock is None:
                    lock = self._in_doubt[name] = asyncio.Lock()
                await stack.enter_async_context(lock)
            yield

    async def run(self, name: str, verb: Callable[[CachedQueue], Awaitable[T]], *, is_alone: bool = False) -> T:
        """Make a verb on a queue, again if its settings were changed meanwhile."""
        known = await self.get(name)
        while True:
            try:
                if is_alone:
                    async with known.gate.alone():
                        return await verb(known)
                await known.gate.enter()
                try:
                    return await verb(known)
                finally:
                    await known.gate.leave()
            except psycopg.Error as error:
                if not is_changed(error):
                    raise
            known = await self.get(name, is_fresh=True)

    def keep_tallies(self, numbers: AbstractSet[int]) -> None:
        """Forget what was counted in queues that are gone."""
        for number in self._tallies.keys() - numbers:
            del self._tallies[number]

    async def pages(self) -> AsyncIterator[list[CachedQueue]]:
        """Read all queues there are, some at a time."""
        after = -1
        while True:
            rows = await self._database.ask("all_queues", after=after, most=QUEUES_AT_ONCE)
            changed = [number for number, name, version in rows if not self._is_current(number, name, version)]
            if changed:
                for nth, row in enumerate(await self._database.ask("queues_by_number", SENT_AS["integer[]"](changed))):
                    self.note(QueueRow(*row))
                    if nth % _NOTED_AT_ONCE == 0:
                        await asyncio.sleep(0)
            # One that was deleted a moment ago may be known no more.
            yield [known for _, name, _ in rows if (known := self._known.get(name)) is not None]
            if len(rows) < QUEUES_AT_ONCE:
                return
            after = rows[-1][0]

    def _is_current(self, number: int, name: str, version: int) -> bool:
        known = self._known.get(name)
        return known is not None and (known.number, known.version) == (number, version)

    async def create(self, name: str, settings: QueueSettings, grave: str, now_ms: int) -> bool:
        """Make a queue, and return whether there was none of its name."""
        made = await self._database.call("create_queue", name, settings.to_json(), grave, now_ms)
        return made[0] is not None


def is_changed(error: psycopg.Error) -> bool:
    """Whether a queue is not as it was known: it has another version, or was deleted while a verb waited to enter."""
    return error.sqlstate == CHANGED or (
        error.sqlstate == psycopg.errors.InternalError_.sqlstate and "could not open relation with OID" in str(error)
    )
