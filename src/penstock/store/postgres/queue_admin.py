"""Create, change, delete and purge queues, and the calls that note their answer.

These calls are rare. Each is made in one transaction together with a row of `operation` that keeps its answer, so that
a broken connection does not turn a queue that was just created into one that exists already, nor one that was just
deleted into one that never was there.

The note is the first statement of the transaction. If the connection breaks, the note is looked up; if the same call
is made again, it waits at the note for the first attempt and then reads its answer. Frequent calls note their answer
inside their function (`Database.call_once`); this takes some round trips more, and works with any function.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from psycopg import AsyncConnection, errors

from penstock.contract.messages import MessageOutcome
from penstock.contract.names import check_name
from penstock.contract.queue_settings import BadSettings, QueueSettings, check_settings
from penstock.runtime.interface import Dice
from penstock.store.errors import DeadLettersShared, QueueExists
from penstock.store.interface import Remains
from penstock.store.postgres.array_codec import SENT_AS
from penstock.store.postgres.database import Database
from penstock.store.postgres.maintenance import Maintenance, PurgeTurn
from penstock.store.postgres.queue_cache import CachedQueue, QueueCache, dead_letter_queue_of
from penstock.store.postgres.statements import function

Call = tuple[str, Sequence[Any]]

_RETRIES_MAX = 20
_NOTE = "INSERT INTO {schema}.operation (id, at_ms, answer) VALUES (%s, %s, '')"
_ANSWER = "UPDATE {schema}.operation SET answer = %s WHERE id = %s"


async def call_noted(database: Database, *calls: Call, operation: int, now_ms: int) -> list[list[Any]]:
    """Call functions in one transaction, all of them or none, and return the row that each answers with.

    Raises `ConnectionLost` only if the database cannot be reached, or not again.
    """
    note = await database.make_once(lambda: _call(database, calls, operation, now_ms), operation)
    return list(json.loads(bytes(note)))


async def _call(database: Database, calls: Sequence[Call], operation: int, now_ms: int) -> bytes:
    for _ in range(_RETRIES_MAX):
        try:
            async with database.transaction() as connection:
                return await _call_within(connection, database.settings.schema, calls, operation, now_ms)
        except (errors.SerializationFailure, errors.DeadlockDetected) as error:
            again = error
    raise again


async def _call_within(
    connection: AsyncConnection, schema: str, calls: Sequence[Call], operation: int, now_ms: int
) -> bytes:
    await connection.execute(_NOTE.format(schema=schema).encode(), (operation, now_ms))
    answers: list[list[Any]] = []
    for name, values in calls:
        made = function(name, schema)
        found = await connection.execute(made.text, made.arguments(values))
        answers.append(list(await found.fetchone() or ()))
    note = json.dumps(answers).encode()
    await connection.execute(_ANSWER.format(schema=schema).encode(), (note, operation))
    return note


class QueueChanges:
    def __init__(
        self,
        database: Database,
        cache: QueueCache,
        maintenance: Maintenance,
        now_ms: Callable[[], int],
        dice: Dice,
        wake: Callable[[str], None],
    ) -> None:
        self._database = database
        self._cache = cache
        self._maintenance = maintenance
        self._now_ms = now_ms
        self._dice = dice
        self._wake = wake

    async def _noted(self, *calls: Call) -> list[list[Any]]:
        return await call_noted(self._database, *calls, operation=self._dice.token(), now_ms=self._now_ms())

    async def create(self, queue: str, settings: QueueSettings) -> None:
        check_name(queue)
        check_settings(queue, settings)
        values = queue, settings.to_json(), dead_letter_queue_of(queue, settings), self._now_ms()
        async with self._cache.doubt(queue):
            # None if there is one of this name.
            ((number,),) = await self._noted(("create_queue", values))
        if number is not None:
            self._wake(queue)
        elif (await self._cache.get(queue, is_fresh=True)).settings != settings:
            raise QueueExists(f"there is a queue {queue!r} with other settings")

    async def change(self, known: CachedQueue, settings: QueueSettings) -> None:
        if settings.is_fifo != known.settings.is_fifo:
            raise BadSettings("is_fifo is chosen when a queue is created, and stays")
        if settings == known.settings:
            return
        await self._maintenance.advance_a_turn(known)
        values = (
            known.number, known.version, settings.to_json(), dead_letter_queue_of(known.name, settings),
            settings.deliveries_max, settings.is_fifo, self._now_ms(),
        )  # fmt: skip
        await self._noted(("change_queue", values))
        await self._cache.reload(known)
        self._wake(known.name)

    async def delete(self, known: CachedQueue, *, with_dead_letters: bool) -> Remains:
        async with self._cache.doubt(known.name):
            grave = await self._cache.find(known.grave, is_fresh=True)
            if grave is None:
                await self._remove([known])
                return Remains(None, 0, is_deleted=False)
            if with_dead_letters:
                await check_unshared(self._database, grave.name, [known.number, grave.number])
            ((count,),) = await self._database.ask("live_count", grave.number, 2**62)
            await self._remove([known, grave] if with_dead_letters else [known])
            return Remains(grave.name, count, is_deleted=with_dead_letters)

    async def _remove(self, queues: Sequence[CachedQueue]) -> None:
        """Delete queues, all of them or none. What one turn leaves in them is removed by tidying."""
        # In the order of their numbers, so that two that delete do not wait for each other.
        queues = sorted(queues, key=lambda known: known.number)
        await self._noted(*[
            ("delete_queue", (*self._purged(known, self._dice.token()), *self._maintenance.turn_of_a_purge()))
            for known in queues
        ])  # fmt: skip
        for known in queues:
            self._cache.forget(known.name)
            self._wake(known.name)

    async def begin_purge(self, known: CachedQueue) -> PurgeTurn:
        """Decide that what is in a queue goes: some of it at once, and the rest with `Maintenance.purge`."""
        purge = self._dice.token()
        values = *self._purged(known, purge), MessageOutcome.PURGED, *self._maintenance.turn_of_a_purge()
        ((settled, is_over),) = await self._noted(("begin_purge", values))
        return PurgeTurn(purge, settled, is_over)

    def _purged(self, known: CachedQueue, purge: int) -> tuple[Any, ...]:
        return known.number, known.version, self._now_ms(), purge, known.settings.is_fifo, known.history


async def check_unshared(database: Database, grave: str, apart_from: Sequence[int]) -> None:
    others = await database.ask("others_that_bury", grave, SENT_AS["integer[]"](apart_from))
    if others:
        raise DeadLettersShared(f"{others[0][0]!r} buries in {grave!r}, too; nothing was deleted")
