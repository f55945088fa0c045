"""The store on a connection of somebody else's: the same verbs, in the transaction of that connection.

A verb is one call of a function, and that call is all that the transaction sees of it; what a verb asks beforehand,
such as which queue that is, is asked on a connection of the store's own. So only what is committed counts there: a
queue that the transaction itself has made is not known yet.

Nothing is tried again that others have made fail, a deadlock say: the whole transaction is the caller's to repeat.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from typing import Any

from penstock.core.message import Drafts, Receipt
from penstock.store.interface import Outcome
from penstock.store.postgres.columns import DUMPERS
from penstock.store.postgres.database import Database, PostgresSettings
from penstock.store.postgres.lending import Lending
from penstock.store.postgres.statements import function
from penstock.store.postgres.store import PostgresStore
from penstock.store.postgres.within import InThread, Joined, Raw, join


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
        """Send drafts in the transaction of a connection. Raises `NotInTransaction`."""
        return await _on(self._store, await join(connection, self._in_thread)).send(queue, drafts)

    async def ack(self, connection: object, queue: str, receipts: Sequence[Receipt]) -> bool:
        """Ack messages in the transaction of a connection; if a lease has ended, that fails, and this returns False."""
        joined = await join(connection, self._in_thread)
        outcomes = await _on(self._store, joined).ack(queue, receipts)
        if outcomes.count(Outcome.DONE) == len(receipts):
            return True
        await joined.fail()
        return False

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


def _on(store: PostgresStore, joined: Joined) -> PostgresStore:
    twin = copy(store)
    twin._database = Borrowed(store._database, joined)
    return twin


def _teach(cursor: Any) -> None:
    for kind, dumper in DUMPERS:
        cursor.adapters.register_dumper(kind, dumper)
