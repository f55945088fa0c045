"""Queues are made, changed and deleted: rarely, and one at a time in each process.

What was answered is noted in the database (`noting.py`), so that a connection that breaks does not make a queue that
was just made one that is there already, nor one that was just deleted one that was never there.
"""

from collections.abc import Callable, Sequence
from typing import Any

from penstock.contract.messages import MessageOutcome
from penstock.contract.names import check_name
from penstock.contract.queue_settings import BadSettings, QueueSettings
from penstock.runtime.interface import Dice
from penstock.store.errors import QueueExists
from penstock.store.interface import Remains
from penstock.store.postgres.burying import Burying, PurgeTurn
from penstock.store.postgres.database import Database
from penstock.store.postgres.known import KnownQueue, grave_of
from penstock.store.postgres.noting import Call, call_noted
from penstock.store.postgres.operating import check_settings, check_unshared
from penstock.store.postgres.registry import Registry


class Altering:
    def __init__(
        self,
        database: Database,
        registry: Registry,
        burying: Burying,
        now_ms: Callable[[], int],
        dice: Dice,
        wake: Callable[[str], None],
    ) -> None:
        self._database = database
        self._registry = registry
        self._burying = burying
        self._now_ms = now_ms
        self._dice = dice
        self._wake = wake

    async def _noted(self, *calls: Call) -> list[list[Any]]:
        return await call_noted(self._database, *calls, operation=self._dice.token(), now_ms=self._now_ms())

    async def create(self, queue: str, settings: QueueSettings) -> None:
        check_name(queue)
        check_settings(queue, settings)
        values = queue, settings.to_json(), grave_of(queue, settings), self._now_ms()
        async with self._registry.doubt(queue):
            # None if there is one of this name.
            ((number,),) = await self._noted(("create_queue", values))
        if number is not None:
            self._wake(queue)
        elif (await self._registry.get(queue, is_fresh=True)).settings != settings:
            raise QueueExists(f"there is a queue {queue!r} with other settings")

    async def change(self, known: KnownQueue, settings: QueueSettings) -> None:
        if settings.is_fifo != known.settings.is_fifo:
            raise BadSettings("is_fifo is chosen when a queue is created, and stays")
        if settings == known.settings:
            return
        await self._burying.advance_a_turn(known)
        values = (
            known.number, known.version, settings.to_json(), grave_of(known.name, settings), settings.deliveries_max,
            settings.is_fifo, self._now_ms(),
        )  # fmt: skip
        await self._noted(("change_queue", values))
        await self._registry.reload(known)
        self._wake(known.name)

    async def delete(self, known: KnownQueue, *, with_dead_letters: bool) -> Remains:
        async with self._registry.doubt(known.name):
            grave = await self._registry.find(known.grave, is_fresh=True)
            if grave is None:
                await self._remove([known])
                return Remains(None, 0, is_deleted=False)
            if with_dead_letters:
                await check_unshared(self._database, grave.name, [known.number, grave.number])
            ((count,),) = await self._database.ask("live_count", grave.number, 2**62)
            await self._remove([known, grave] if with_dead_letters else [known])
            return Remains(grave.name, count, is_deleted=with_dead_letters)

    async def _remove(self, queues: Sequence[KnownQueue]) -> None:
        """Delete queues, all of them or none. What one turn leaves in them is removed by tidying."""
        # In the order of their numbers, so that two that delete do not wait for each other.
        queues = sorted(queues, key=lambda known: known.number)
        await self._noted(*[
            ("delete_queue", (*self._purged(known, self._dice.token()), *self._burying.turn_of_a_purge()))
            for known in queues
        ])  # fmt: skip
        for known in queues:
            self._registry.forget(known.name)
            self._wake(known.name)

    async def begin_purge(self, known: KnownQueue) -> PurgeTurn:
        """Decide that what is in a queue goes: some of it at once, and the rest with `Burying.purge`."""
        purge = self._dice.token()
        values = *self._purged(known, purge), MessageOutcome.PURGED, *self._burying.turn_of_a_purge()
        ((settled, is_over),) = await self._noted(("begin_purge", values))
        return PurgeTurn(purge, settled, is_over)

    def _purged(self, known: KnownQueue, purge: int) -> tuple[Any, ...]:
        return known.number, known.version, self._now_ms(), purge, known.settings.is_fifo, known.history
