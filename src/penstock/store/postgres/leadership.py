"""Coordinate the servers of one database: liveness, wake-ups, a common clock, and one leader that runs maintenance.

Each store has a connection of its own and a row of `server` that names it, so the first store to open knows that it is
alone. One store is the leader and runs maintenance; when its connection is gone, the next store that asks takes over.

Wake-ups go through one channel for the whole store, in batches of queue names at most every few milliseconds. A NOTIFY
holds a lock of the whole server until its commit is written, so it is never sent per message, and it runs in a
transaction that writes nothing. Callers' transactions send one as rarely; for the others the store polls until they
have ended, and then notifies.

All stores of a database go by the latest time that any of them has seen. One machine whose clock is hours fast would
end the leases of all, and then time would stand still for all until it has come. Every machine asks the same database,
so its clock decides who is wrong. Small differences do not matter, and are left as they are (`FollowingClock`).

Behind a transaction pooler nothing stays with a connection: leases are not restarted after a restart, every store runs
maintenance, and long polls are woken at every beat to look for themselves. Sending notifications still works.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, runtime_checkable

import psycopg
from psycopg import AsyncConnection, Notify

from penstock.runtime.interface import Clock, LogEventWriter
from penstock.store.errors import NotConfirmed, OutcomeUnknown, StoreForbids, StoreUnreachable
from penstock.store.postgres import migrate
from penstock.store.postgres.connection import ConnectionLost, answered_within
from penstock.store.postgres.database import Database
from penstock.store.postgres.durability import Engine, check_durable
from penstock.store.postgres.errors import quiet, refusal, without_long_waits

# Machines with a time service differ by much less, and leases are longer.
TOLERATED_MS = 10_000


@runtime_checkable
class Following(Protocol):
    """A clock that can be told what time it is."""

    def own_ms(self) -> int:
        """The time of this machine, whatever was heard."""
        ...

    def synchronize(self, theirs_ms: int, *, asked_ms: int, heard_ms: int) -> None:
        """Learn what another clock said between two moments of our own."""
        ...

    @property
    def doubt(self) -> str | None:
        """What is wrong with the clock of this machine, None if nothing is."""
        ...


def following_of(clock: Clock) -> Following | None:
    """Return what to tell the time to: a clock that can be told, or the one that it goes by."""
    found = getattr(clock, "following", clock)
    return found if isinstance(found, Following) else None


class FollowingClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._offset_ms

    def own_ms(self) -> int:
        return self._clock.now_ms()

    def synchronize(self, theirs_ms: int, *, asked_ms: int, heard_ms: int) -> None:
        offset_ms = theirs_ms - (asked_ms + heard_ms) // 2
        is_far = abs(offset_ms) > TOLERATED_MS + heard_ms - asked_ms
        self._offset_ms = offset_ms if is_far else 0

    @property
    def doubt(self) -> str | None:
        if not self._offset_ms:
            return None
        side = "ahead of" if self._offset_ms < 0 else "behind"
        return (
            f"the clock of this machine is {abs(self._offset_ms) / 1_000:,.0f} s {side} that of the database, which "
            "counts: see to a time service on both"
        )


TIDY_BEATS = 5
# How many names one call has.
_NAMES_MAX = 60
_EVERYBODY = "*"
# Any role that may connect can call us. Past so many names in `tell_s` everybody is woken once, at its end.
_HEARD_MAX = 50 * _NAMES_MAX
# Notifying others and maintenance are retried after any of these.
_TROUBLE = (StoreUnreachable, StoreForbids, psycopg.Error)
_ENDED = b"""
SELECT number FROM unnest(%s::bigint[]) AS running (number)
WHERE pg_xact_status(number::text::xid8) IS DISTINCT FROM 'in progress'
"""


class Leadership:
    def __init__(
        self,
        database: Database,
        *,
        now_ms: Callable[[], int],
        turn: Callable[[], Awaitable[None]],
        tidy: Callable[[], Awaitable[None]],
        wake: Callable[[str | None], None],
        clock: Following | None = None,
    ) -> None:
        self._database = database
        self._timing = database.settings.timing
        self._now_ms = now_ms
        self._turn = turn
        self._tidy = tidy
        self._is_time_to_tidy = asyncio.Event()
        self._wake = wake
        self._clock = clock
        self._connection: AsyncConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._untold: set[str] = set()
        self._has_untold = asyncio.Event()
        # When a queue was last told of in a transaction of a caller's; and of which others it is to be told after.
        self._told_at: dict[str, float] = {}
        self._running: dict[int, set[str]] = {}
        self._has_running = asyncio.Event()
        # How many names were heard since this was reset, and whether everybody is to be woken then.
        self._heard = 0
        self._wakes_all = False
        self._resetting: asyncio.TimerHandle | None = None
        self.is_leader = False
        # What the server is configured to do that a store of queues would rather not.
        self.durability_warnings: list[str] = []
        # The latest time any store has seen.
        self.latest_time_ms = 0

    async def open(self, *, may_migrate: bool, log_event: LogEventWriter = quiet) -> None:
        settings = self._database.settings
        self._database.gate.log_event = log_event
        connection = await self._database.connect()
        try:
            with _said(connection):
                self.durability_warnings = await check_durable(connection, settings.schema, may_lose=settings.may_lose)
                if may_migrate:
                    await migrate.migrate(connection, settings.schema, log_event, waits=self._timing.opening)
                else:
                    await migrate.check(connection, settings.schema)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        await self.meet()
        if self._clock is not None and self._clock.doubt is not None:
            self.durability_warnings.append(self._clock.doubt)
        if settings.is_pooled:
            await connection.close()
            self._connection = None
        else:
            with _said(connection):
                await without_long_waits(
                    connection,
                    settings.schema,
                    lambda: self._announce(connection),
                    log_event,
                    pause_s=self._timing.opening.pause_s,
                )

    async def _announce(self, connection: AsyncConnection, *, is_back: bool = False) -> None:
        """Tell the others that this store is there. If it is the only one, leases begin again at full length."""
        schema = self._database.settings.schema
        async with connection.transaction():
            await connection.execute(self._timing.opening.limit.encode())
            announced = f"SELECT {schema}.announce(%s::bigint, %s::boolean)"
            await connection.execute(announced.encode(), (self._now_ms(), is_back))
        await connection.execute(f"LISTEN {schema}".encode())

    async def meet(self) -> None:
        """Tell the others the time, and take theirs if it is later. Look at what makes commits durable."""
        asked_ms = 0 if self._clock is None else self._clock.own_ms()
        (row,) = await self._database.ask("engine")
        engine = Engine(*row)
        self._database.gate.learn(engine)
        if self._clock is not None:
            self._clock.synchronize(engine.now_ms, asked_ms=asked_ms, heard_ms=self._clock.own_ms())
        (self.latest_time_ms,) = await self._database.call_ungated("meet", self._now_ms())

    def start(self, also: Callable[[], Coroutine[None, None, None]]) -> None:
        """Begin; ``also`` runs as long as this does."""
        self._database.gate.is_probed = True
        self._task = asyncio.create_task(self._run(also))  # noqa: TID251 - close awaits it.

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._resetting is not None:
            self._resetting.cancel()
        if self._connection is not None:
            await self._connection.close()

    def tell(self, queue: str) -> None:
        """Let stores elsewhere know that something in a queue may be leasable."""
        self._untold.add(queue)
        self._has_untold.set()

    def may_tell(self, queue: str) -> bool:
        """Whether a transaction that begins to tell of a queue now is the only one for a while."""
        now = asyncio.get_running_loop().time()
        # Without background tasks there is no later notification.
        if self._task is not None and now < self._told_at.get(queue, 0.0) + self._timing.tell_s:
            return False
        self._told_at[queue] = now
        return True

    def tell_after(self, transaction: int, queue: str) -> None:
        """Let all stores know of a queue when a transaction has ended."""
        self._running.setdefault(transaction, set()).add(queue)
        self._has_running.set()

    async def _run(self, also: Callable[[], Coroutine[None, None, None]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            tasks.create_task(self._probe())
            tasks.create_task(self._look_after())
            tasks.create_task(self._tell())
            tasks.create_task(self._follow())
            tasks.create_task(also())

    async def _beat(self) -> None:
        beats = 0
        while True:
            try:
                await self._listen()
                await self.meet()
                beats += 1
                if beats % TIDY_BEATS == 0:
                    await self._turn()
                    if await self._leads():
                        self._is_time_to_tidy.set()
            except (OutcomeUnknown, NotConfirmed):
                # The connection is good; it is a standby that is missing.
                pass
            except _TROUBLE:
                await self._return()

    async def _probe(self) -> None:
        """While commits are not confirmed, try one again and again."""
        gate = self._database.gate
        while True:
            await gate.has_stalled.wait()
            try:
                await self._database.confirm()
                gate.confirm()
            except _TROUBLE:
                await asyncio.sleep(self._timing.beat_s)

    async def _look_after(self) -> None:
        """Run maintenance when it is due: in a task of its own, because it may wait for a transaction."""
        while True:
            await self._is_time_to_tidy.wait()
            self._is_time_to_tidy.clear()
            with suppress(*_TROUBLE):
                await self._tidy()

    async def _listen(self) -> None:
        connection = self._connection
        if connection is None:
            await asyncio.sleep(self._timing.beat_s)
            # Other stores may have sent something without a notification.
            self._wake(None)
            return
        async for heard in connection.notifies(timeout=self._timing.beat_s):
            self._hear(heard, connection.info.backend_pid)

    def _hear(self, heard: Notify, own_pid: int) -> None:
        sender, _, names = heard.payload.partition(":")
        if sender == str(own_pid):
            return
        if self._resetting is None:
            self._resetting = asyncio.get_running_loop().call_later(self._timing.tell_s, self._reset_heard)
        told = names.split(",", _NAMES_MAX)
        self._heard += len(told)
        if names == _EVERYBODY or len(told) > _NAMES_MAX or self._heard > _HEARD_MAX:
            self._wakes_all = True
            return
        for name in told:
            self._wake(name)

    def _reset_heard(self) -> None:
        wakes_all, self._wakes_all = self._wakes_all, False
        self._heard, self._resetting = 0, None
        if wakes_all:
            self._wake(None)

    async def _leads(self) -> bool:
        """Whether this store is the leader. Behind a pooler every store is."""
        if self._connection is None:
            return True
        # The leader asks, too: without any other traffic on this connection its silence would go unnoticed.
        with answered_within(self._connection, self._database.settings.silence_s):
            found = await self._connection.execute(f"SELECT {self._database.settings.schema}.lead()".encode())
            row = await found.fetchone()
        self.is_leader = row is not None and bool(row[0])
        return self.is_leader

    async def _return(self) -> None:
        """Connect again after the connection broke; long polls may have missed a wake-up."""
        self.is_leader = False
        await asyncio.sleep(self._timing.beat_s)
        if self._connection is None:
            return
        with suppress(*_TROUBLE):
            await self._connection.close()
            self._connection = await self._database.connect()
            try:
                with answered_within(self._connection, self._database.settings.silence_s):
                    await self._announce(self._connection, is_back=True)
            except BaseException:
                # Without LISTEN it would hear nothing: the next beat finds it closed, and connects again.
                await self._connection.close()
                raise
            self._wake(None)

    async def _tell(self) -> None:
        while True:
            await self._has_untold.wait()
            await asyncio.sleep(self._timing.tell_s)
            self._has_untold.clear()
            names, self._untold = self._untold, set()
            told = ",".join(sorted(names)) if len(names) <= _NAMES_MAX else _EVERYBODY
            with suppress(*_TROUBLE):
                pid = 0 if self._connection is None else self._connection.info.backend_pid
                channel = self._database.settings.schema
                await self._database.read(b"SELECT pg_notify(%s, %s)", (channel, f"{pid}:{told}"))

    async def _follow(self) -> None:
        """Notify of sends in callers' transactions that have ended."""
        while True:
            await self._has_running.wait()
            await asyncio.sleep(self._timing.tell_s)
            self._has_running.clear()
            wait_s = self._timing.tell_s
            while self._running:
                with suppress(*_TROUBLE):
                    self._tell_of(await self._database.read(_ENDED, (list(self._running),)))
                wait_s = min(2 * wait_s, self._timing.beat_s)
                with suppress(TimeoutError):
                    # Old transactions are polled less often, new ones at once.
                    async with asyncio.timeout(wait_s):
                        await self._has_running.wait()
                    break

    def _tell_of(self, ended: list[tuple[int]]) -> None:
        for (transaction,) in ended:
            for queue in self._running.pop(transaction, ()):
                self._wake(queue)
                self.tell(queue)


@contextmanager
def _said(connection: AsyncConnection) -> Iterator[None]:
    """Translate an error on the connection: a refusal, or a lost connection."""
    try:
        yield
    except psycopg.Error as error:
        refused = refusal(error) or (ConnectionLost(str(error)) if connection.closed else None)
        if refused is None:
            raise
        raise refused from error
