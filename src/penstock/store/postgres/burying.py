"""What is due without anyone asking: time moves on, spent messages go to the dead letters, old ones go."""

from collections.abc import Callable

import psycopg

from penstock.core.limits import MOVE_MESSAGES_MAX, SENDER_MS, SENDERS_MAX, SWEEP_ROWS
from penstock.core.settings import DAY_MS, QueueSettings
from penstock.store.interface import QueueNotFound
from penstock.store.postgres.database import Database
from penstock.store.postgres.known import KnownQueue, grave_of
from penstock.store.postgres.leasing import ADVANCE_MOST
from penstock.store.postgres.registry import CHANGED, Registry

# Dead letters wait for people, who are away at weekends.
DEAD_LETTERS = QueueSettings(deliveries_max=0, retention_ms=14 * DAY_MS)
# How long a call may take to learn what became of one whose connection broke.
OPERATION_MS = 60 * 60 * 1_000
PERIOD_MS = DAY_MS
# One transaction moves so many dead letters at most.
_BURIED_MOST = 10 * MOVE_MESSAGES_MAX


class Burying:
    def __init__(
        self, database: Database, registry: Registry, now_ms: Callable[[], int], wake: Callable[[str], None]
    ) -> None:
        self._database = database
        self._registry = registry
        self._now_ms = now_ms
        self._wake = wake
        # The period of the history that is written to.
        self.period = 1

    async def tidy(self) -> None:
        """Tidy all queues."""
        now_ms = self._now_ms()
        (self.period,) = await self._database.call("turn_history", now_ms, PERIOD_MS)
        for known in await self._registry.all_rows():
            try:
                await self._registry.run(known.name, self._tidy)
            except QueueNotFound:
                # It was deleted a moment ago.
                continue
        await self._database.call("tidy", now_ms, SENDER_MS, SENDERS_MAX, OPERATION_MS)

    async def _tidy(self, known: KnownQueue) -> None:
        while await self.advance(known):
            while await self.bury(known):
                pass
            break
        settings, now_ms = known.settings, self._now_ms()
        while settings.retention_ms:
            (count,) = await self._database.call(
                "expire", known.number, known.version, now_ms, now_ms - settings.retention_ms, SWEEP_ROWS,
                settings.is_fifo, known.history, self.period,
            )  # fmt: skip
            if not count:
                break
            known.drained.add(count, now_ms)
            if settings.is_fifo:
                self._wake(known.name)

    async def advance(self, known: KnownQueue) -> bool:
        """Do what follows from the time alone, and return whether something waits to be buried."""
        while True:
            now_ms = self._now_ms()
            settings, from_ms = known.settings, known.lapsed_from_ms(now_ms)
            next_ms, has_spent = await self._database.call(
                "advance", known.number, now_ms, from_ms, settings.deliveries_max, known.aging_ms, settings.is_fifo,
                ADVANCE_MOST,
            )  # fmt: skip
            known.asked(now_ms, next_ms, has_spent=has_spent)
            if next_ms is None or next_ms > now_ms:
                return known.has_spent

    async def bury(self, known: KnownQueue) -> int:
        """Move some spent messages to the dead letters, and return how many went."""
        grave = await self._grave(known)
        now_ms, settings = self._now_ms(), grave.settings
        try:
            (count,) = await self._database.call(
                "bury", known.number, known.version, grave.number, grave.version, now_ms, _BURIED_MOST,
                settings.size_max or None, known.settings.is_fifo, settings.is_fifo, known.history, self.period,
            )  # fmt: skip
        except psycopg.Error as error:
            if error.sqlstate == CHANGED:
                # Whichever of the two it was: the other may have been deleted.
                self._registry.forget(grave.name)
            raise
        if count:
            known.drained.add(count, now_ms)
            self._wake(grave.name)
            if known.settings.is_fifo:
                self._wake(known.name)
        return int(count)

    async def _grave(self, known: KnownQueue) -> KnownQueue:
        """Return the queue to bury in, which is made when it is first needed."""
        name = known.grave
        found = await self._registry.find(name)
        if found is None:
            grave = grave_of(name, DEAD_LETTERS)
            if await self._registry.create(name, DEAD_LETTERS, grave, self._now_ms()):
                self._wake(name)
            found = await self._registry.get(name)
        return found
