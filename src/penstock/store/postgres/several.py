"""Opens several databases that are used as one: each once, with numbers of its own, and all at one time."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from psycopg import AsyncConnection

from penstock.runtime.interface import Clock, Dice, LogEventWriter
from penstock.store.errors import StoreForbids, StoreUnfit, StoreUnreachable
from penstock.store.postgres.blocking import quiet
from penstock.store.postgres.database import Database, PostgresSettings
from penstock.store.postgres.following import following_of
from penstock.store.postgres.numbering import claim, distinct
from penstock.store.postgres.store import PostgresStore


class CommonClock:
    """The time of all: that of the machine, or the latest that any of the databases has seen.

    Whoever waits for something reckons with one time, whichever database it is in.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.following = following_of(clock)
        self._stores: list[PostgresStore] = []

    def join(self, store: PostgresStore) -> None:
        self._stores.append(store)

    def now_ms(self) -> int:
        return max([self._clock.now_ms(), *(store._presence.floor_ms for store in self._stores)])


@asynccontextmanager
async def open_several(
    databases: Sequence[PostgresSettings],
    *,
    clock: Clock,
    dice: Dice,
    may_migrate: bool = True,
    has_upkeep: bool = True,
    log_event: LogEventWriter = quiet,
) -> AsyncIterator[tuple[list[PostgresStore], list[int]]]:
    """Open databases for as long as this lasts; yields those that differ, and which of them each of the given is.

    Raises `NumbersShared`, and what opening one raises: all are opened, or none.
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
                    log_event=log_event,
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
