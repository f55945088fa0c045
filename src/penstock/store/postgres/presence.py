"""What a store does beside its verbs: it is there, it listens, it agrees on the time, and one of all tidies up.

A connection of its own holds two locks that end with it: one shared by every store that
is there, by which the first to come knows that it is alone; and one that makes its
owner the leader, who does what is due without anyone asking. The others try for it now
and then, so that there is soon another one.

Wakes go out by one channel for the whole store, at most one call every few
milliseconds, with the names of the queues: a NOTIFY takes a lock of the whole database
when it commits, so it is never one for each message.

Behind a pooler that lends connections for a transaction none of this works, and is not
tried: leases do not begin anew after a restart, every store tidies, and whoever waits
polls.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import psycopg
from psycopg import AsyncConnection, Notify

from penstock.store.postgres import migrate
from penstock.store.postgres.database import Database, Lost, check_durable

BEAT_S = 1.0
TIDY_BEATS = 5
# How long wakes gather before they go out together, and how many names one call has.
TELL_S = 0.05
_NAMES_MAX = 60
_EVERYBODY = "*"


class Presence:
    def __init__(
        self,
        database: Database,
        *,
        now_ms: Callable[[], int],
        tidy: Callable[[], Awaitable[None]],
        wake: Callable[[str | None], None],
    ) -> None:
        self._database = database
        self._now_ms = now_ms
        self._tidy = tidy
        self._wake = wake
        self._connection: AsyncConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._untold: set[str] = set()
        self._has_untold = asyncio.Event()
        self.is_leader = False
        # What the server is configured to do that a store of queues would rather not.
        self.doubts: list[str] = []
        # The latest time any store has seen.
        self.floor_ms = 0

    async def open(self, *, may_migrate: bool) -> None:
        settings = self._database.settings
        connection = await self._database.connect()
        try:
            self.doubts = await check_durable(connection, may_lose=settings.may_lose)
            if may_migrate:
                await migrate.migrate(connection, settings.schema)
            else:
                await migrate.check(connection, settings.schema)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        await self.meet()
        if settings.is_pooled:
            await connection.close()
            self._connection = None
        else:
            await self._announce(connection)

    async def _announce(self, connection: AsyncConnection) -> None:
        """Be there, and if nobody else is, begin all leases anew: nobody could extend them."""
        schema = self._database.settings.schema
        alone = f"hashtext('{schema}.alone'), 0"
        found = await connection.execute(f"SELECT pg_try_advisory_lock({alone})".encode())
        row = await found.fetchone()
        if row is not None and row[0]:
            await self._database.call("rearm", self._now_ms())
        await connection.execute(f"SELECT pg_advisory_lock_shared({alone})".encode())
        if row is not None and row[0]:
            await connection.execute(f"SELECT pg_advisory_unlock({alone})".encode())
        await connection.execute(f"LISTEN {schema}".encode())

    async def meet(self) -> None:
        """Tell the others the time, and take theirs if it is later."""
        (self.floor_ms,) = await self._database.call("meet", self._now_ms())

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())  # noqa: TID251 - close awaits it.

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._connection is not None:
            await self._connection.close()

    def tell(self, queue: str) -> None:
        """Let stores elsewhere know that something in a queue may be leasable."""
        self._untold.add(queue)
        self._has_untold.set()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            if not self._database.settings.is_pooled:
                tasks.create_task(self._tell())

    async def _beat(self) -> None:
        beats = 0
        while True:
            try:
                await self._listen()
                await self.meet()
                beats += 1
                if beats % TIDY_BEATS == 0 and await self._leads():
                    await self._tidy()
            except (Lost, psycopg.Error):
                # Whatever it was, to look after the queues is tried again.
                await self._return()

    async def _listen(self) -> None:
        connection = self._connection
        if connection is None:
            await asyncio.sleep(BEAT_S)
            return
        async for heard in connection.notifies(timeout=BEAT_S):
            self._hear(heard, connection.info.backend_pid)

    def _hear(self, heard: Notify, own_pid: int) -> None:
        sender, _, names = heard.payload.partition(":")
        if sender == str(own_pid):
            return
        for name in names.split(","):
            self._wake(None if name == _EVERYBODY else name)

    async def _leads(self) -> bool:
        """Whether this store is the one that tidies. Where there are no such locks, every one is."""
        if self._connection is not None and not self.is_leader:
            lock = f"SELECT pg_try_advisory_lock(hashtext('{self._database.settings.schema}.leader'), 0)"
            found = await self._connection.execute(lock.encode())
            row = await found.fetchone()
            self.is_leader = row is not None and bool(row[0])
        return self.is_leader or self._connection is None

    async def _return(self) -> None:
        """Connect again after the connection broke; who waits may have missed something."""
        self.is_leader = False
        await asyncio.sleep(BEAT_S)
        if self._connection is None:
            return
        with suppress(Lost, psycopg.Error):
            await self._connection.close()
            self._connection = await self._database.connect()
            schema = self._database.settings.schema
            await self._connection.execute(f"SELECT pg_advisory_lock_shared(hashtext('{schema}.alone'), 0)".encode())
            await self._connection.execute(f"LISTEN {schema}".encode())
            self._wake(None)

    async def _tell(self) -> None:
        while True:
            await self._has_untold.wait()
            await asyncio.sleep(TELL_S)
            self._has_untold.clear()
            names, self._untold = self._untold, set()
            told = ",".join(sorted(names)) if len(names) <= _NAMES_MAX else _EVERYBODY
            with suppress(Lost, psycopg.Error):
                pid = 0 if self._connection is None else self._connection.info.backend_pid
                channel = self._database.settings.schema
                await self._database.read(b"SELECT pg_notify(%s, %s)", (channel, f"{pid}:{told}"))
