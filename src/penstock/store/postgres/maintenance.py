"""Maintenance: messages age, wake and expire, leases end, spent messages are buried, purges go on, history goes."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import psycopg

from penstock.contract.limits import MOVE_MESSAGES_MAX, SENDER_MS, SENDERS_MAX, SWEEP_ROWS
from penstock.contract.queue_settings import DAY_MS, DEAD_LETTER_SETTINGS, MINUTE_MS
from penstock.store.errors import QueueNotFound, StoreForbids
from penstock.store.postgres.array_codec import SENT_AS
from penstock.store.postgres.database import Database
from penstock.store.postgres.errors import Locked, retry_on_lock
from penstock.store.postgres.lease import ADVANCE_MOST
from penstock.store.postgres.queue_cache import (
    ASK_MS,
    CHANGED,
    MORE_MS,
    CachedQueue,
    QueueCache,
    dead_letter_queue_of,
    is_changed,
)

# How long a call may take to learn what became of one whose connection broke.
OPERATION_MS = 60 * 60 * 1_000
PERIOD_MS = DAY_MS
# How often it is looked whether a period of the history is past its retention.
_RETIRE_MS = MINUTE_MS
_OFFSET_MAX = 2**63 - 1
# How long to tidy one queue before the next: what is left is done the next time.
QUEUE_S_MAX = 10.0
# How often to wait for others who end leases that are due.
_HELD_TRIES = 5
# One transaction moves so many dead letters at most.
_BURIED_MOST = 10 * MOVE_MESSAGES_MAX
# A turn of a purge, which is one transaction, settles so many messages, of so many bytes, and one lease more.
PURGE_MOST = 2_000
_PURGE_BYTES = 64 << 20
# A purge without a turn for so long has lost its server, and the leader goes on with it.
PURGE_IDLE_MS = 10_000


class PurgeTurn(NamedTuple):
    """Which purge, how many messages it has settled so far, and whether those were all."""

    purge: int
    settled: int
    is_over: bool


class Maintenance:
    def __init__(
        self, database: Database, cache: QueueCache, now_ms: Callable[[], int], wake: Callable[[str], None]
    ) -> None:
        self._database = database
        self._cache = cache
        self._now_ms = now_ms
        self._wake = wake
        # The period of the history that is written to.
        self.period = 1
        self._retires_at_ms = 0
        # Told the names of a queue and of its dead letters when these are full.
        self.tell_full: Callable[[str, str], None] = lambda *_: None
        # The numbers of queues whose dead letters are full.
        self._stuck: set[int] = set()

    async def turn(self) -> None:
        """Read which period of the history is written to, and begin a new one if it is due.

        Every store does this now and then: one that wrote to an old period would fail once that is dropped.
        """
        (self.period,) = await self._database.call_ungated("turn_history", self._now_ms(), PERIOD_MS)

    async def tidy(self) -> None:
        """Run maintenance on queues in which something is due."""
        await self.turn()
        there: set[int] = set()
        async for queues in self._cache.pages():
            there.update(known.number for known in queues)
            for known in await self._due(queues):
                # The queue may have been deleted a moment ago; or an open transaction holds its messages, and other
                # queues must not wait for that.
                with suppress(QueueNotFound, TimeoutError):
                    async with asyncio.timeout(QUEUE_S_MAX):
                        await self._cache.run(known.name, self._tidy)
        for purge, queue in await self._database.ask("purges_left", self._now_ms() - PURGE_IDLE_MS):
            with suppress(Locked, TimeoutError):
                async with asyncio.timeout(QUEUE_S_MAX):
                    await self.purge(queue, PurgeTurn(purge, 0, is_over=False))
        await self._database.call("tidy", self._now_ms(), SENDER_MS, SENDERS_MAX, OPERATION_MS)
        await self._take_tallies()
        self._cache.keep_tallies(there)
        await self._retire_history()

    async def _take_tallies(self) -> None:
        """Count what steps of any server, or program, have noted. A row that is taken by a server that dies is lost."""
        for number, lapsed, promoted in await self._database.ask("take_tallies"):
            tally = self._cache.tally(number)
            tally.lapsed += lapsed
            tally.promoted += promoted

    async def _due(self, queues: Sequence[CachedQueue]) -> list[CachedQueue]:
        now_ms = self._now_ms()
        from_ms = [known.looks_from_ms(now_ms) for known in queues]
        rows = await self._database.ask(
            "due_queues",
            now=now_ms,
            numbers=SENT_AS["integer[]"]([known.number for known in queues]),
            looked=SENT_AS["bigint[]"](from_ms),
            sent_until=SENT_AS["bigint[]"]([_sent_until_ms(known, now_ms) for known in queues]),
            aging_ms=SENT_AS["bigint[]"]([each for known in queues for each in known.aging_ms]),
            bounds=SENT_AS["bigint[]"]([each for known in queues for each in known.bounds.lowest]),
        )
        due = {number for (number,) in rows}
        for known, at_ms in zip(queues, from_ms, strict=True):
            if known.number not in due:
                known.nothing_was_due(now_ms, from_ms=at_ms)
        return [known for known in queues if known.number in due]

    async def _retire_history(self) -> None:
        """Detach, or drop, the periods of the history that are past their retention."""
        settings, now_ms = self._database.settings, self._now_ms()
        if not settings.history_retention_ms or now_ms < self._retires_at_ms:
            return
        self._retires_at_ms = now_ms + _RETIRE_MS
        # A table that is read all the while, by a backup say, goes the next time.
        with suppress(Locked):
            before_ms = now_ms - settings.history_retention_ms
            await self._database.call("trim_history", _OFFSET_MAX, before_ms, settings.drops_history)

    async def _tidy(self, known: CachedQueue) -> None:
        while await self.advance(known):
            while await self.bury(known):
                pass
            break
        settings, now_ms = known.settings, self._now_ms()
        while settings.retention_ms:
            (count,) = await self._database.call(
                "expire", known.number, known.version, now_ms, _sent_until_ms(known, now_ms), SWEEP_ROWS,
                settings.is_fifo, known.history, self.period, known.bounds.lowest,
            )  # fmt: skip
            if not count:
                break
            known.drained.add(count, now_ms)
            self._cache.tally(known.number).expired += count
            if settings.is_fifo:
                self._wake(known.name)

    async def purge(self, queue: str, turn: PurgeTurn) -> int:
        """Run a purge to its end, and return how many messages it settled in all, also on other servers."""
        before, known = turn.settled, await self._cache.find(queue)
        while not turn.is_over:
            try:
                turn = await retry_on_lock(
                    partial(self._purge_turn, turn.purge), self._database.settings.timing.retries_s
                )
            except Locked as error:
                raise Locked(
                    f"{error}. {turn.settled} messages were purged; the others follow when they are free"
                ) from error
            self._wake(queue)
        if known is not None:
            self._cache.tally(known.number).purged += turn.settled - before
        return turn.settled

    async def _purge_turn(self, purge: int) -> PurgeTurn:
        async def call() -> Any:
            return await self._database.call("purge_turn", purge, self._now_ms(), *self.turn_of_a_purge(), False)

        while True:
            try:
                # The row of the purge has what was done, so a turn with an unknown outcome is simply repeated.
                return PurgeTurn(purge, *await self._database.make_once(call, purge))
            except psycopg.Error as error:
                # The queue was deleted while this waited to enter.
                if not is_changed(error):
                    raise

    def turn_of_a_purge(self) -> tuple[int, int, int]:
        """Return how many messages, and bytes, one turn settles, and in which period of the history."""
        return PURGE_MOST, _PURGE_BYTES, self.period

    async def advance(self, known: CachedQueue) -> bool:
        """Apply everything that is due by the time alone, and return whether something waits to be buried."""
        while await self.advance_a_turn(known):
            pass
        return known.has_spent

    async def advance_a_turn(self, known: CachedQueue) -> bool:
        """Apply some of what is due by the time alone, and return whether there is more: maintenance does the rest."""
        while True:
            now_ms = self._now_ms()
            settings, from_ms = known.settings, known.lapsed_from_ms(now_ms)
            next_ms, has_spent = await self._database.call(
                "advance", known.number, now_ms, from_ms, settings.deliveries_max, known.aging_ms, settings.is_fifo,
                ADVANCE_MOST, now_ms + ASK_MS, known.bounds.lowest,
            )  # fmt: skip
            known.asked(now_ms, next_ms, from_ms=from_ms, has_spent=has_spent)
            # What was done may have made something else due: a message that came back has aged.
            if next_ms is None or next_ms > now_ms or next_ms == MORE_MS or known.is_held:
                return bool(next_ms == MORE_MS)

    async def advance_a_turn_with_others(self, known: CachedQueue) -> None:
        """Apply one turn of what is due, and wait a moment for other transactions that are applying it already."""
        await self.advance_a_turn(known)
        for _ in range(_HELD_TRIES):
            if not known.is_held:
                return
            await self._database.call(
                "wait_for_lapse",
                known.number,
                self._now_ms(),
                known.looked_until_ms,
                self._database.settings.timing.lapse_ms,
            )
            await self.advance_a_turn(known)

    async def bury(self, known: CachedQueue, *, most: int = _BURIED_MOST) -> int:
        """Move some spent messages to the dead letters, and return how many went."""
        try:
            grave = await self._grave(known)
        except StoreForbids:
            # This role may not create the dead-letter queue; a server will.
            return 0
        now_ms, settings = self._now_ms(), grave.settings
        try:
            (count,) = await self._database.call(
                "bury", known.number, known.version, grave.number, grave.version, now_ms, most,
                settings.size_max or None, known.settings.is_fifo, settings.is_fifo, known.history, self.period,
            )  # fmt: skip
        except psycopg.Error as error:
            if error.sqlstate == CHANGED:
                # Either queue may be the one that changed or was deleted.
                self._cache.forget(grave.name)
            raise
        if count or not settings.size_max:
            self._stuck.discard(known.number)
        elif known.number not in self._stuck and await self.advance(known):
            # Something still waits to be buried: it is room that is missing, not messages.
            self._stuck.add(known.number)
            self.tell_full(known.name, grave.name)
        if count:
            known.drained.add(count, now_ms)
            self._cache.tally(known.number).buried += count
            self._wake(grave.name)
            if known.settings.is_fifo:
                self._wake(known.name)
        return int(count)

    async def _grave(self, known: CachedQueue) -> CachedQueue:
        """Return the queue to bury in, which is made when it is first needed."""
        name = known.grave
        found = await self._cache.find(name)
        if found is None:
            settings = replace(DEAD_LETTER_SETTINGS, size_max=known.settings.size_max)
            if await self._cache.create(name, settings, dead_letter_queue_of(name, settings), self._now_ms()):
                self._wake(name)
            found = await self._cache.get(name)
        return found


def _sent_until_ms(known: CachedQueue, now_ms: int) -> int:
    """Messages that were sent until then are too old."""
    return now_ms - known.settings.retention_ms if known.settings.retention_ms else -1
