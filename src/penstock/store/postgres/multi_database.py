"""Use several databases as one: open each once, number their queues apart, and route callers' transactions.

A queue's number is part of every message id, so no two databases of a map may use the same one. Each has a *range* of
numbers, kept in it (`moment.queue_range`): range r begins at r << 24. A database that is used alone has range 0, and
is not bound to it.

Opening several claims a range for each, under a lock in all of them: if several servers start at once, one claims and
the others read the result. A range is kept as soon as a queue has a number of it, whatever becomes of the map. The
locks are tried, not waited for, because another map may list the same databases in another order.

A caller's connection leads to one database. Before its first use the store checks that this is the queue's database:
it holds a lock that the connection then cannot take. So nothing is written to a wrong database. A connection stays
with its database, so the check is made once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection, OperationalError

from penstock.core.queue.message import Drafts, Receipt
from penstock.core.routes import Routes
from penstock.runtime.interface import Clock, Dice, LogEventWriter, Timings
from penstock.store.errors import QueueNotFound, StoreForbids, StoreUnfit, StoreUnreachable
from penstock.store.postgres.caller_transaction import CallerTransaction, QueueElsewhere, Raw, Transactions
from penstock.store.postgres.connection import ConnectionLost
from penstock.store.postgres.database import Database, PostgresSettings
from penstock.store.postgres.errors import quiet
from penstock.store.postgres.leadership import following_of
from penstock.store.postgres.statements import statement
from penstock.store.postgres.store import PostgresStore


class CommonClock:
    """The time of all: that of the machine, or the latest that any of the databases has seen.

    Waiting is computed with one time, whichever database a queue is in.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.following = following_of(clock)
        self._stores: list[PostgresStore] = []

    def join(self, store: PostgresStore) -> None:
        self._stores.append(store)

    def now_ms(self) -> int:
        return max([self._clock.now_ms(), *(store._leadership.latest_time_ms for store in self._stores)])


@asynccontextmanager
async def open_several(  # noqa: PLR0913 - as for one.
    databases: Sequence[PostgresSettings],
    *,
    clock: Clock,
    dice: Dice,
    may_migrate: bool = True,
    has_upkeep: bool = True,
    log_event: LogEventWriter = quiet,
    timings: Timings | None = None,
) -> AsyncIterator[tuple[list[PostgresStore], list[int]]]:
    """Open databases until the block ends; yields the distinct stores, and for each given database its store.

    Raises `QueueNumbersOverlap`, and what opening one raises: all are opened, or none.
    """
    async with AsyncExitStack() as connecting:
        connections: list[AsyncConnection] = []
        for place, each in enumerate(databases):
            with _entry(place):
                connections.append(await connecting.enter_async_context(await Database(each).connect()))
        firsts = await distinct(connections, dice)
    owners = sorted(set(firsts))
    common = CommonClock(clock)
    async with AsyncExitStack() as stack:
        stores: list[PostgresStore] = []
        for owner in owners:
            with _entry(owner):
                store = await PostgresStore.open(
                    databases[owner], clock=common, dice=dice, may_migrate=may_migrate, has_upkeep=has_upkeep,
                    log_event=log_event, timings=timings,
                )  # fmt: skip
            stores.append(await stack.enter_async_context(store))
            common.join(store)
        await claim([store._database for store in stores], dice)
        for store in stores:
            # So that it knows the number of its history.
            await store._history.look()
        yield stores, [owners.index(first) for first in firsts]


@contextmanager
def _entry(place: int) -> Iterator[None]:
    """Name the entry of the map in whatever one of its databases is refused for."""
    try:
        yield
    except (StoreUnreachable, StoreForbids, StoreUnfit) as error:
        raise type(error)(f"entry {place + 1} of the map: {error}") from error


RANGE_BITS = 24
# As many as a number of PostgreSQL's type integer has room for.
RANGES = 1 << (31 - RANGE_BITS)
_TRIES_MAX = 200
_PAUSE_S = 0.1


class QueueNumbersOverlap(StoreUnfit):
    """Two databases have given the same numbers to their queues, so that they cannot be used as one."""


class QueueNumbers(NamedTuple):
    """The numbers of one database: its range, whether others know of it, and the highest that a queue has or had."""

    range: int
    is_claimed: bool
    highest: int | None

    @property
    def has_queues(self) -> bool:
        return self.highest is not None


def claims(found: Sequence[QueueNumbers]) -> list[int]:
    """Return the range that each database is to have: its own if it can. Raises `QueueNumbersOverlap`."""
    owners: dict[int, int] = {}
    # A database with queues cannot change its range, and one that has claimed a range should not.
    for place in sorted(range(len(found)), key=lambda at: (not found[at].has_queues, not found[at].is_claimed)):
        each = found[place]
        if each.has_queues:
            _check(found, owners, place)
        free = each.range if each.range not in owners else min(set(range(RANGES)).difference(owners))
        owners[free] = place
    ranges = {place: free for free, place in owners.items()}
    return [ranges[place] for place in range(len(found))]


def _check(found: Sequence[QueueNumbers], owners: dict[int, int], place: int) -> None:
    each = found[place]
    if each.highest is not None and each.highest >> RANGE_BITS != each.range:
        raise QueueNumbersOverlap(
            f"database {place + 1} of the map has given more than {1 << RANGE_BITS:,} numbers to queues, and those of "
            "others begin there: serve it by itself"
        )
    if each.range in owners:
        raise QueueNumbersOverlap(
            f"databases {owners[each.range] + 1} and {place + 1} of the map use the same queue ids, because both were "
            "used alone before. Run a separate server for each; or drain one, drop its schema and start with an "
            "empty one"
        )


async def distinct(connections: Sequence[AsyncConnection], dice: Dice) -> list[int]:
    """Return for each connection the first that is to the same database, which may be itself.

    Two names lead to one database if a lock that is taken by one is taken for the other. Locks are of one database and
    of nothing else, so a copy of a database is never mistaken for it.
    """
    firsts: list[int] = []
    async with AsyncExitStack() as stack:
        held: dict[int, int] = {}
        for place, connection in enumerate(connections):
            await stack.enter_async_context(connection.transaction())
            async with connection.transaction(force_rollback=True):
                # What it can take it gives back, or a later name of the same database would be taken for another's.
                same = [first for first, key in held.items() if not await _takes(connection, key)]
            firsts.append(same[0] if same else place)
            if not same:
                held[place] = dice.token()
                await _takes(connection, held[place])
    return firsts


async def _takes(connection: AsyncConnection, key: int) -> bool:
    row = await (await connection.execute("SELECT pg_try_advisory_xact_lock(%s::bigint)", (key,))).fetchone()
    return row is not None and bool(row[0])


async def claim(databases: Sequence[Database], dice: Dice) -> list[int]:
    """Give each database a range that no other one has, and return the ranges. Raises `QueueNumbersOverlap`."""
    for _ in range(_TRIES_MAX):
        try:
            claimed = await _claim(databases)
        except OperationalError as error:
            raise ConnectionLost(str(error)) from error
        if claimed is not None:
            return claimed
        await asyncio.sleep(dice.roll() * _PAUSE_S)
    raise StoreUnreachable(
        "the table of queue numbers stays locked in one of the databases: look for an open transaction there"
    )


async def _claim(databases: Sequence[Database]) -> list[int] | None:
    """Claim ranges; None if the lock of a database is taken."""
    async with AsyncExitStack() as stack:
        connections: list[AsyncConnection] = []
        for database in databases:
            connection = await stack.enter_async_context(await database.connect())
            await stack.enter_async_context(connection.transaction())
            lock = f"SELECT 1 FROM {database.settings.schema}.moment FOR UPDATE SKIP LOCKED"
            if await (await connection.execute(lock.encode())).fetchone() is None:
                return None
            connections.append(connection)
        schemas = [database.settings.schema for database in databases]
        found = [await _read(connection, schema) for connection, schema in zip(connections, schemas, strict=True)]
        wanted = claims(found)
        for connection, schema, before, after in zip(connections, schemas, found, wanted, strict=True):
            if (before.range, before.is_claimed) != (after, True):
                # The first queue that is made takes the first number of it.
                changed = f"UPDATE {schema}.moment SET queue_range = %s, is_range_claimed = true"
                await connection.execute(changed.encode(), (after,))
        return wanted


async def _read(connection: AsyncConnection, schema: str) -> QueueNumbers:
    row = await (await connection.execute(statement("numbering", schema))).fetchone()
    assert row is not None
    return QueueNumbers(*row)


class RoutedTransactions:
    """What `borrowing.Transactions` does, in the database that a queue is in."""

    def __init__(self, routes: Routes, places: Sequence[Transactions], dice: Dice) -> None:
        self._routes = routes
        self._places = places
        self._token: Callable[[], int] = dice.token
        self._known: WeakKeyDictionary[Raw, int] = WeakKeyDictionary()

    async def send(self, connection: object, queue: str, drafts: Drafts) -> Sequence[str]:
        return await (await self._at(connection, queue)).send(connection, queue, drafts)

    async def ack(self, connection: object, queue: str, receipts: Sequence[Receipt]) -> bool:
        return await (await self._at(connection, queue)).ack(connection, queue, receipts)

    def transaction(self, *, is_threaded: bool, queue: str | None = None) -> AbstractAsyncContextManager[Raw]:
        """Lend a connection to the database that a queue is in; it must be said which, unless there is but one."""
        if queue is None and len(self._places) > 1:
            raise ValueError("queue is not given, and queues are in several databases: say transaction(queue=…)")
        place = 0 if queue is None else self._place(queue)
        return self._places[place].transaction(is_threaded=is_threaded)

    def _place(self, queue: str) -> int:
        place = self._routes.place_of(queue)
        if place is None:
            raise QueueNotFound(f"there is no queue {queue!r}: no pattern of the map fits it ({self._routes.patterns})")
        return place

    async def _at(self, connection: object, queue: str) -> Transactions:
        """Return the transactions of the database that a queue is in. Raises `QueueElsewhere`."""
        place = self._place(queue)
        there = self._places[place]
        joined = await there.join(connection)
        if self._known.get(joined.raw) != place:
            if not await self._is_at(there, joined):
                raise QueueElsewhere(
                    f"{queue!r} is in {self._routes.name_of(place)}, and the connection is to another database: "
                    "nothing was written"
                )
            self._known[joined.raw] = place
        return there

    async def _is_at(self, there: Transactions, joined: CallerTransaction) -> bool:
        key: Any = (self._token(),)
        async with there.holding(b"SELECT pg_advisory_xact_lock(%s::bigint)", key):
            row = await joined.fetch(b"SELECT pg_try_advisory_xact_lock(%s::bigint)", key)
        return row is not None and not row[0]
