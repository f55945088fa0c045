"""The store on a connection of somebody else's: the same verbs, in the transaction of that connection.

A verb is one call of a function, and that call is all that the transaction sees of it; what a verb asks beforehand,
such as which queue that is, is asked on a connection of the store's own. So only what is committed counts there: a
queue that the transaction itself has made is not known yet.

Nothing is tried again that others have made fail, a deadlock say: the whole transaction is the caller's to repeat.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from penstock.core.message import Drafts, Receipt
from penstock.store.interface import Outcome
from penstock.store.postgres import sending, settling
from penstock.store.postgres.columns import DUMPERS
from penstock.store.postgres.database import Database, PostgresSettings
from penstock.store.postgres.known import KnownQueue
from penstock.store.postgres.lending import Lending
from penstock.store.postgres.statements import function
from penstock.store.postgres.store import PostgresStore
from penstock.store.postgres.within import InThread, Joined, Raw, join

# Stands for the process that tells: none of those that listen, so that all of them hear it.
NOBODY = 0


class Borrowed(Database):
    """The connections of a store, and one more for what changes something."""

    def __init__(self, own: Database, joined: Joined) -> None:
        self.__dict__.update(own.__dict__)
        self._joined = joined

    async def call(self, name: str, *values: Any) -> Any:
        made = function(name, self.settings.schema)
        return await self._joined.fetch(made.text, made.arguments(values), _teach)

    async def call_once(self, name: str, *values: Any, operation: int) -> Any:
        """What an operation has answered is not noted: if the connection breaks, so does the transaction."""
        del operation
        return (await self.call(name, *values, None))[0]


class Transactions:
    """Sends and acks in transactions of callers, and transactions for those who have none."""

    def __init__(self, store: PostgresStore, lending: Lending, in_thread: InThread) -> None:
        self._store = store
        self._lending = lending
        self._in_thread = in_thread

    async def send(self, connection: object, queue: str, drafts: Drafts) -> Sequence[str]:
        """Send drafts, of which there is at least one, in the transaction of a connection."""
        joined = await join(connection, self._in_thread)
        store, borrowed = self._store, Borrowed(self._store._database, joined)

        async def send(known: KnownQueue) -> Sequence[str]:
            return await sending.send(borrowed, known, drafts, None, now_ms=store.now_ms(), operation=0)

        ids = await store._registry.run(queue, send)
        await self._tell(joined, queue)
        return ids

    async def ack(self, connection: object, queue: str, receipts: Sequence[Receipt]) -> bool:
        """Ack messages in the transaction of a connection; if a lease has ended, that fails, and this returns False."""
        joined = await join(connection, self._in_thread)
        store, borrowed = self._store, Borrowed(self._store._database, joined)

        async def ack(known: KnownQueue) -> list[Outcome]:
            period, now_ms = store._burying.period, store.now_ms()
            return await settling.ack(
                borrowed, known, receipts, outlives=False, period=period, now_ms=now_ms, operation=0
            )

        outcomes = await store._registry.run(queue, ack)
        if outcomes.count(Outcome.DONE) < len(receipts):
            await joined.fail()
            return False
        # What is behind them in their groups may be next.
        await self._tell(joined, queue)
        return True

    async def _tell(self, joined: Joined, queue: str) -> None:
        """Wake whoever waits, when the transaction commits: PostgreSQL holds a notification back until then."""
        await joined.fetch(b"SELECT pg_notify(%s, %s)", (self._store._database.settings.schema, f"{NOBODY}:{queue}"))

    def transaction(self, *, is_threaded: bool) -> AbstractAsyncContextManager[Raw]:
        """Lend a connection in a transaction."""
        return self._lending.plain_transaction() if is_threaded else self._lending.transaction()


@asynccontextmanager
async def transactions(
    store: PostgresStore, database: PostgresSettings, in_thread: InThread
) -> AsyncIterator[Transactions]:
    """Let programs have transactions for as long as this lasts."""
    lending = Lending(database.url, is_pooled=database.is_pooled, in_thread=in_thread)
    try:
        yield Transactions(store, lending, in_thread)
    finally:
        await lending.close()


def _teach(cursor: Any) -> None:
    for kind, dumper in DUMPERS:
        cursor.adapters.register_dumper(kind, dumper)
