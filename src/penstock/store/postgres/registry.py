"""The queues a process knows, by name, and how a verb is made on one of them.

A verb is given the queue as it is known. If the database says that it was changed, it
is read again and the verb is made again: nothing of the first one was done.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

import psycopg

from penstock.contract.names import is_name
from penstock.contract.queue_settings import QueueSettings
from penstock.store.errors import QueueNotFound
from penstock.store.postgres.database import Database
from penstock.store.postgres.known import KnownQueue, QueueRow

T = TypeVar("T")

CHANGED = "PS001"


class Registry:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, KnownQueue] = {}
        # Names that are being given or taken away by this process.
        self._in_doubt: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def all(self) -> list[KnownQueue]:
        return list(self._known.values())

    async def find(self, name: str, *, is_fresh: bool = False) -> KnownQueue | None:
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
        """Return those that can be names of queues, with the versions known here, once nobody makes or deletes them."""
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

    def note(self, row: QueueRow) -> KnownQueue:
        known = self._known.get(row.name)
        if known is None or known.number != row.number:
            known = self._known[row.name] = KnownQueue(row)
        elif known.version != row.version:
            known.read(row)
        return known

    async def get(self, name: str, *, is_fresh: bool = False) -> KnownQueue:
        known = await self.find(name, is_fresh=is_fresh)
        if known is None:
            raise QueueNotFound(f"there is no queue {name!r}")
        return known

    async def reload(self, known: KnownQueue) -> None:
        """Read again what this process has just changed."""
        await self.find(known.name, is_fresh=True)

    async def check(self, known: KnownQueue) -> None:
        """Look whether a queue is as it was when it was read; raises `QueueNotFound` if it is gone."""
        await self.get(known.name, is_fresh=True)

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    @asynccontextmanager
    async def doubt(self, *names: str) -> AsyncIterator[None]:
        """Let whoever asks for these names wait until it is known whether there are such queues."""
        async with AsyncExitStack() as stack:
            for name in sorted(names):
                lock = self._in_doubt.get(name)
                if lock is None:
                    lock = self._in_doubt[name] = asyncio.Lock()
                await stack.enter_async_context(lock)
            yield

    async def run(self, name: str, verb: Callable[[KnownQueue], Awaitable[T]], *, is_alone: bool = False) -> T:
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

    async def all_rows(self) -> list[KnownQueue]:
        """Read all queues there are."""
        rows = await self._database.ask("all_queues")
        return [self.note(QueueRow(*row)) for row in rows]

    async def create(self, name: str, settings: QueueSettings, grave: str, now_ms: int) -> bool:
        """Make a queue, and return whether there was none of its name."""
        made = await self._database.call("create_queue", name, settings.to_json(), grave, now_ms)
        return made[0] is not None


def is_changed(error: psycopg.Error) -> bool:
    """Whether a queue is not as it was known: it has another version, or was deleted while a verb waited to enter."""
    return error.sqlstate == CHANGED or (
        error.sqlstate == psycopg.errors.InternalError_.sqlstate and "could not open relation with OID" in str(error)
    )
