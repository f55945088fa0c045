"""The store on a connection of somebody else's: the same verbs, in the transaction of that connection.

A verb is one call of a function, and that call is all that the transaction sees of it; what a verb asks beforehand,
such as which queue that is, is asked on a connection of the store's own. So only what is committed counts there: a
queue that the transaction itself has made is not known yet.

A connection to another database might find a schema there, too, and in it a queue of the same number: so each call
says which database it is meant for, and does nothing in any other.

Nothing is tried again that others have made fail, a deadlock say: the whole transaction is the caller's to repeat.

The connection plans as its owner wants it to, and for our statements that may be ten times the work: so for each call
it plans as a connection of the store does, and as before from then on, in this transaction, too.

Others are told when the transaction commits. A NOTIFY in it does that at once, and lets all commits of the server that
have one wait for each other; so few have one, and of the others the store asks now and then whether they have ended.
One that is committed in two phases has none: PostgreSQL would not prepare it.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from psycopg import errors

from penstock.core.queue.message import Drafts, Receipt
from penstock.store.interface import Outcome
from penstock.store.postgres import sending, settling
from penstock.store.postgres.columns import DUMPERS
from penstock.store.postgres.database import PLANS, Database, PostgresSettings
from penstock.store.postgres.known import KnownQueue
from penstock.store.postgres.lending import Lending
from penstock.store.postgres.statements import function
from penstock.store.postgres.store import PostgresStore
from penstock.store.postgres.within import Asked, InThread, Joined, Raw, Row, Values, join

# Stands for the process that tells: none of those that listen, so that all of them hear it.
NOBODY = 0
_PLANNED = b"SELECT " + b", ".join(b"current_setting('%s')" % name.encode() for name in PLANS)
_PLAN = b" AND ".join(
    b"set_config('%s', '%s', true) IS NOT NULL" % (name.encode(), value.encode()) for name, value in PLANS.items()
)
# Of all databases that run, no other has this name and is of a server that was started in this very microsecond.
_PLACE = b"current_database()::text, (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
# The order is by what depends on what: where it is and the settings as they were, then ours, then the call.
_CALL = (
    b"SELECT CASE WHEN before.is_here AND "
    + _PLAN
    + b" THEN %s END, pg_current_xact_id()::text::bigint, before.* FROM ("
    + _PLANNED
    + b", ("
    + _PLACE
    + b") = (%%s::text, %%s::bigint) AS is_here OFFSET 0) AS before"
)
_PLAN_AGAIN = b"SELECT " + b", ".join(b"set_config('%s', %%s, true)" % name.encode() for name in PLANS)


class QueueElsewhere(Exception):
    """The queue is in another database than the connection is to; nothing was written."""


class Place:
    """Which database a store is in; asked when it is first needed, and again when it seems to be another."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._found: tuple[str, int] | None = None

    async def look(self, *, is_fresh: bool = False) -> tuple[str, int]:
        if self._found is None or is_fresh:
            ((name, started),) = await self._database.read(b"SELECT " + _PLACE)
            self._found = name, started
        return self._found


class Borrowed(Database):
    """The connections of a store, and one more for what changes something."""

    def __init__(self, own: Database, joined: Joined, place: Place) -> None:
        self.__dict__.update(own.__dict__)
        self.joined = joined
        self._place = place
        # That of the caller, once it is known.
        self.transaction_id = 0

    async def call(self, name: str, *values: Any) -> Any:
        made = function(name, self.settings.schema)
        call = made.text.removeprefix(b"SELECT ")
        assert not call.startswith(b"* FROM"), name
        arguments = made.arguments(values)
        # The server may have been started anew since it was asked.
        for is_fresh in (False, True):
            place = await self._place.look(is_fresh=is_fresh)
            answer, transaction, *_, is_here = await self._ask_here(Asked(_CALL % call, [*arguments, *place], _teach))
            if is_here:
                self.transaction_id = int(transaction)
                return (answer,)
        raise _elsewhere(place[0])

    async def _ask_here(self, asked: Asked) -> Row:
        try:
            row = await self.joined.run(asked._replace(after=_PLAN_AGAIN, after_values=_settings_of))
        except (errors.InvalidSchemaName, errors.UndefinedFunction) as error:
            name, _ = await self._place.look()
            raise _elsewhere(name) from error
        assert row is not None
        return row

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
        self._place = Place(store._database)

    async def send(self, connection: object, queue: str, drafts: Drafts) -> Sequence[str]:
        """Send drafts, of which there is at least one, in the transaction of a connection."""
        joined = await self.join(connection)
        store, borrowed = self._store, Borrowed(self._store._database, joined, self._place)

        async def send(known: KnownQueue) -> Sequence[str]:
            return await sending.send(borrowed, known, drafts, None, now_ms=store.now_ms(), operation=0)

        ids = await store._registry.run(queue, send)
        await self._tell(borrowed, queue)
        return ids

    async def ack(self, connection: object, queue: str, receipts: Sequence[Receipt]) -> bool:
        """Ack messages in the transaction of a connection; if a lease has ended, that fails, and this returns False."""
        joined = await self.join(connection)
        store, borrowed = self._store, Borrowed(self._store._database, joined, self._place)

        async def ack(known: KnownQueue) -> tuple[list[Outcome], bool]:
            period, now_ms = store._burying.period, store.now_ms()
            outcomes = await settling.ack(
                borrowed, known, receipts, outlives=False, period=period, now_ms=now_ms, operation=0
            )
            return outcomes, known.settings.is_fifo

        outcomes, is_fifo = await store._registry.run(queue, ack)
        if outcomes.count(Outcome.DONE) < len(receipts):
            await joined.fail()
            return False
        if is_fifo:
            # What is behind them in their groups may be next.
            await self._tell(borrowed, queue)
        return True

    async def join(self, connection: object) -> Joined:
        return await join(connection, self._in_thread)

    @asynccontextmanager
    async def holding(self, statement: bytes, values: Values) -> AsyncIterator[None]:
        """Hold what a statement takes in a transaction of the store's own, a lock say, for as long as this lasts."""
        async with await self._store._database.connect() as connection, connection.transaction():
            await connection.execute(statement, values)
            yield

    async def _tell(self, borrowed: Borrowed, queue: str) -> None:
        """Wake whoever waits, when the transaction commits: PostgreSQL holds a notification back until then."""
        presence, schema = self._store._presence, borrowed.settings.schema
        if not borrowed.joined.is_two_phase and presence.may_tell(queue):
            await borrowed.joined.fetch(b"SELECT pg_notify(%s, %s)", (schema, f"{NOBODY}:{queue}"))
        else:
            presence.tell_after(borrowed.transaction_id, queue)

    def transaction(self, *, is_threaded: bool, queue: str | None = None) -> AbstractAsyncContextManager[Raw]:
        """Lend a connection in a transaction; every ``queue`` is in this database."""
        del queue
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


def _elsewhere(name: str) -> QueueElsewhere:
    return QueueElsewhere(
        f"the queue is in the database {name!r}, and the connection is to another database: nothing was written"
    )


def _settings_of(row: Row) -> Values:
    """The settings as they were, from an answer; a connection without an encoding has texts as bytes."""
    return [each.decode() if isinstance(each, bytes) else each for each in row[2:-1]]


def _teach(cursor: Any) -> None:
    for kind, dumper in DUMPERS:
        cursor.adapters.register_dumper(kind, dumper)
