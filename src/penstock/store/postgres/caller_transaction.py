"""Send and ack in a transaction of the caller's, on the caller's connection; and connections for callers without one.

    psycopg.AsyncConnection            psycopg.Connection: in a thread, because it would block the event loop
    sqlalchemy.ext.asyncio.AsyncConnection, sqlalchemy.Connection: the psycopg connection below them

The caller begins and ends the transaction. Each statement runs in a savepoint, so a refused one leaves the transaction
intact; only `fail` spoils it, on purpose. A connection in `autocommit` without a transaction is refused, because its
owner believes in a transaction that does not exist. A SQLAlchemy connection without a transaction begins one here, as
any statement of its own would: otherwise it would have nothing to commit or to roll back.

A verb is one function call in that transaction. What it needs to know before, such as the queue's number, is read on a
connection of the store, so a queue created in the same transaction is not known yet.

A connection to another database might find the same schema and queue number there. So each call names the database it
is meant for, and does nothing in any other.

Deadlocks and serialization failures are not retried here: the caller has to repeat the whole transaction.

The caller's planner settings may cost ten times the work. So each call sets those of the store, and restores the
caller's afterwards, within the transaction.

Waiting consumers are notified at commit. A NOTIFY in the transaction does that at once, but makes all commits of the
server that have one wait for each other. So few transactions have one, and the store polls until the others have
ended. A two-phase commit has none: PostgreSQL would not prepare it.

`TransactionPool` lends connections of its own, not the store's, because a borrower may keep one for as long as its
work takes. It keeps at most as many open as were in use at once.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

import psycopg
from psycopg import errors, pq
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from penstock.core.queue.message import Drafts, Receipt
from penstock.store.interface import Outcome
from penstock.store.postgres import send, settle
from penstock.store.postgres.array_codec import DUMPERS
from penstock.store.postgres.connection import BoundedConnection, answered_within, bounded
from penstock.store.postgres.database import PLANS, Database, PostgresSettings
from penstock.store.postgres.queue_cache import CachedQueue
from penstock.store.postgres.statements import function
from penstock.store.postgres.store import PostgresStore

T = TypeVar("T")

Raw = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
Values = Sequence[object] | Mapping[str, object]
# Teaches a cursor how the store writes its values.
Teach = Callable[[Any], None]
Row = tuple[Any, ...]


class CallerStatement(NamedTuple):
    """What to run, and what after it, with values out of the row that it has returned."""

    statement: bytes
    values: Values
    teach: Teach | None = None
    after: bytes | None = None
    after_values: Callable[[Row], Values] = tuple


_FAIL = "DO $$ BEGIN RAISE EXCEPTION 'penstock: a lease has ended' USING ERRCODE = 'serialization_failure'; END $$"


class InThread(Protocol):
    """Runs a function that waits in a thread; `asyncio.to_thread` is one."""

    def __call__(self, function: Callable[..., T], /, *arguments: Any) -> Awaitable[T]: ...


class NotInTransaction(Exception):
    """A connection that is no connection to PostgreSQL by psycopg, or that is in no transaction."""


class CallerTransaction:
    """A caller's transaction, on its psycopg connection."""

    def __init__(self, raw: Raw, in_thread: InThread, *, is_two_phase: bool = False) -> None:
        self.raw = raw
        self._in_thread = in_thread
        # Whether it is to be prepared before it commits: nothing in it may send a notification then.
        self.is_two_phase = is_two_phase

    async def fetch(self, statement: bytes, values: Values) -> Row | None:
        """Run a statement in a savepoint of the transaction, and return its first row."""
        return await self.run(CallerStatement(statement, values))

    async def run(self, asked: CallerStatement) -> Row | None:
        """Run one or two statements in a savepoint of the transaction, and return the first row of the first."""
        raw = self.raw
        if isinstance(raw, psycopg.Connection):
            return await self._in_thread(_run, raw, asked)
        if raw.info.transaction_status == pq.TransactionStatus.IDLE:
            # Without it `transaction` below would begin one of its own, and commit it.
            await _cursor(raw).execute("SELECT")
        async with raw.transaction(), _cursor(raw) as cursor:
            if asked.teach is not None:
                asked.teach(cursor)
            await cursor.execute(asked.statement, asked.values, binary=True)
            row = await cursor.fetchone()
            if asked.after is not None and row is not None:
                await cursor.execute(asked.after, asked.after_values(row))
            return row

    async def fail(self) -> None:
        """Make the transaction fail: whatever its owner does, it cannot commit any more."""
        try:
            if isinstance(self.raw, psycopg.Connection):
                await self._in_thread(_plain_cursor(self.raw).execute, _FAIL)
            else:
                await _cursor(self.raw).execute(_FAIL)
        except psycopg.errors.SerializationFailure:
            pass


async def join(connection: object, in_thread: InThread) -> CallerTransaction:
    """Join the transaction of whatever connection was given. Raises `NotInTransaction`."""
    found = await _below(connection)
    if not isinstance(found, psycopg.Connection | psycopg.AsyncConnection):
        raise NotInTransaction(
            f"connection is a {type(connection).__name__}; it must be one of psycopg 3, or of SQLAlchemy over psycopg 3"
        )
    if found.autocommit and found.info.transaction_status == pq.TransactionStatus.IDLE:
        raise NotInTransaction(
            "connection is in autocommit and in no transaction: begin one, `with connection.transaction():`"
        )
    await _begin(connection)
    return CallerTransaction(found, in_thread, is_two_phase=_is_two_phase(connection, found))


async def _below(connection: Any) -> object:
    # Recognized by attributes, so that SQLAlchemy need not be installed.
    if hasattr(connection, "get_raw_connection"):
        connection = await connection.get_raw_connection()
    elif hasattr(connection, "engine") and hasattr(connection, "connection"):
        connection = connection.connection
    return getattr(connection, "driver_connection", connection)


async def _begin(connection: Any) -> None:
    if hasattr(connection, "in_transaction") and not connection.in_transaction():
        begun = connection.begin()
        if hasattr(begun, "__await__"):
            await begun


def _is_two_phase(connection: Any, raw: Raw) -> bool:
    """Whether it was begun by `tpc_begin` of psycopg, or by `begin_twophase` of SQLAlchemy."""
    begun = connection.get_transaction() if hasattr(connection, "get_transaction") else None
    # Psycopg has no public word for it.
    return raw._tpc is not None or hasattr(begun, "prepare")


# Cursors of our own making: those that the owner of the connection has chosen may write values in another way, or want
# other rows.


def _cursor(raw: psycopg.AsyncConnection[Any]) -> psycopg.AsyncCursor[Row]:
    return psycopg.AsyncCursor(raw, row_factory=tuple_row)


def _plain_cursor(raw: psycopg.Connection[Any]) -> psycopg.Cursor[Row]:
    return psycopg.Cursor(raw, row_factory=tuple_row)


def _run(raw: psycopg.Connection[Any], asked: CallerStatement) -> Row | None:
    if raw.info.transaction_status == pq.TransactionStatus.IDLE:
        _plain_cursor(raw).execute("SELECT")
    with raw.transaction(), _plain_cursor(raw) as cursor:
        if asked.teach is not None:
            asked.teach(cursor)
        cursor.execute(asked.statement, asked.values, binary=True)
        row = cursor.fetchone()
        if asked.after is not None and row is not None:
            cursor.execute(asked.after, asked.after_values(row))
        return row


Async = psycopg.AsyncConnection[Any]
Plain = psycopg.Connection[Any]

# How long one that was kept may take to say that it is still there.
_ANSWER_S = 5.0


class TransactionPool:
    def __init__(self, url: str, *, is_pooled: bool, in_thread: InThread, answer_s: float = _ANSWER_S) -> None:
        self._url = bounded(url)
        self._in_thread = in_thread
        self._answer_s = answer_s
        self._prepare_threshold = None if is_pooled else 5
        self._free: list[Async] = []
        self._free_plain: list[Plain] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Async]:
        """Lend a connection; commit at the end, or roll back on an exception."""
        async with AsyncExitStack() as stack:
            connection = await self._begun()
            stack.push_async_callback(self._give_back, connection)
            await stack.enter_async_context(connection.transaction())
            yield connection

    @asynccontextmanager
    async def plain_transaction(self) -> AsyncIterator[Plain]:
        """Lend one of the synchronous face, to be used in a thread."""
        connection = await self._begun_plain()
        try:
            yield connection
            await self._in_thread(connection.commit)
        except BaseException:
            # The thread it was lent to may have it still: to close it takes no lock, and rolls back.
            connection.close()
            raise
        if _is_idle(connection):
            self._free_plain.append(connection)
        else:
            connection.close()

    async def _begun(self) -> Async:
        """Return a connection that answers: one that was kept may be to a server that has gone since."""
        while self._free:
            connection = self._free.pop()
            try:
                with answered_within(connection, self._answer_s):
                    await connection.execute("SELECT")
            except psycopg.OperationalError:
                await connection.close()
            else:
                return connection
        return await self._connect()

    async def _begun_plain(self) -> Plain:
        while self._free_plain:
            connection = self._free_plain.pop()
            try:
                with answered_within(connection, self._answer_s):
                    await self._in_thread(connection.execute, "SELECT")
            except psycopg.OperationalError:
                connection.close()
            else:
                return connection
        return await self._in_thread(self._connect_plain)

    async def _give_back(self, connection: Async) -> None:
        if _is_idle(connection):
            self._free.append(connection)
        else:
            await connection.close()

    async def close(self) -> None:
        while self._free:
            await self._free.pop().close()
        while self._free_plain:
            self._free_plain.pop().close()

    async def _connect(self) -> Async:
        return await BoundedConnection.connect(self._url, autocommit=True, prepare_threshold=self._prepare_threshold)

    def _connect_plain(self) -> Plain:
        return psycopg.connect(self._url, prepare_threshold=self._prepare_threshold)


def _is_idle(connection: Async | Plain) -> bool:
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE


# Stands for the sender of a notification: no listening process has this number, so all of them act on it.
_NO_PROCESS = 0
_PLANNED = b"SELECT " + b", ".join(b"current_setting('%s')" % name.encode() for name in PLANS)
_PLAN = b" AND ".join(
    b"set_config('%s', '%s', true) IS NOT NULL" % (name.encode(), value.encode()) for name, value in PLANS.items()
)
# No other running database has this name on a server that was started in the same microsecond.
_PLACE = b"current_database()::text, (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
# In the order of dependence: the identity and the caller's settings, then ours, then the call.
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


class DatabaseIdentity:
    """Which database a store is in: read at the first use, and again when it seems to have changed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._found: tuple[str, int] | None = None

    async def look(self, *, is_fresh: bool = False) -> tuple[str, int]:
        if self._found is None or is_fresh:
            ((name, started),) = await self._database.read(b"SELECT " + _PLACE)
            self._found = name, started
        return self._found


class CallerDatabase:
    """The functions of a schema, called in a caller's transaction. Satisfies `database.OnceCaller`."""

    def __init__(self, schema: str, joined: CallerTransaction, place: DatabaseIdentity) -> None:
        self.schema = schema
        self.joined = joined
        self._place = place
        # Known once a function was called.
        self.transaction_id = 0

    async def call_once(self, name: str, *values: Any, operation: int) -> Any:
        """The answer is not noted under the operation: if the connection breaks, so does the transaction."""
        del operation
        made = function(name, self.schema)
        call = made.text.removeprefix(b"SELECT ")
        assert not call.startswith(b"* FROM"), name
        arguments = made.arguments((*values, None))
        # The server may have been restarted since its identity was read.
        for is_fresh in (False, True):
            place = await self._place.look(is_fresh=is_fresh)
            answer, transaction, *_, is_here = await self._ask_here(
                CallerStatement(_CALL % call, [*arguments, *place], _teach)
            )
            if is_here:
                self.transaction_id = int(transaction)
                return answer
        raise _elsewhere(place[0])

    async def _ask_here(self, asked: CallerStatement) -> Row:
        try:
            row = await self.joined.run(asked._replace(after=_PLAN_AGAIN, after_values=_settings_of))
        except (errors.InvalidSchemaName, errors.UndefinedFunction) as error:
            name, _ = await self._place.look()
            raise _elsewhere(name) from error
        assert row is not None
        return row


class Transactions:
    """Sends and acks in callers' transactions, and transactions for callers without one."""

    def __init__(self, store: PostgresStore, lending: TransactionPool, in_thread: InThread) -> None:
        self._store = store
        self._lending = lending
        self._in_thread = in_thread
        self._place = DatabaseIdentity(store._database)
        self._schema = store._database.settings.schema

    async def send(self, connection: object, queue: str, drafts: Drafts) -> Sequence[str]:
        """Send drafts, of which there is at least one, in the transaction of a connection."""
        joined = await self.join(connection)
        store, borrowed = self._store, CallerDatabase(self._schema, joined, self._place)

        async def run(known: CachedQueue) -> Sequence[str]:
            return await send.send(borrowed, known, drafts, None, now_ms=store.now_ms(), operation=0)

        ids = await store._cache.run(queue, run)
        await self._tell(borrowed, queue)
        return ids

    async def ack(self, connection: object, queue: str, receipts: Sequence[Receipt]) -> bool:
        """Ack messages in the transaction of a connection; if a lease has ended, that fails, and this returns False."""
        joined = await self.join(connection)
        store, borrowed = self._store, CallerDatabase(self._schema, joined, self._place)

        async def ack(known: CachedQueue) -> tuple[list[Outcome], bool]:
            period, now_ms = store._maintenance.period, store.now_ms()
            outcomes = await settle.ack(
                borrowed, known, receipts, outlives=False, period=period, now_ms=now_ms, operation=0
            )
            return outcomes, known.settings.is_fifo

        outcomes, is_fifo = await store._cache.run(queue, ack)
        if outcomes.count(Outcome.DONE) < len(receipts):
            await joined.fail()
            return False
        if is_fifo:
            # Messages behind them in their groups may be next.
            await self._tell(borrowed, queue)
        return True

    async def join(self, connection: object) -> CallerTransaction:
        return await join(connection, self._in_thread)

    @asynccontextmanager
    async def holding(self, statement: bytes, values: Values) -> AsyncIterator[None]:
        """Run a statement in a transaction of the store, and hold its locks until the block ends."""
        async with await self._store._database.connect() as connection, connection.transaction():
            await connection.execute(statement, values)
            yield

    async def _tell(self, borrowed: CallerDatabase, queue: str) -> None:
        """Wake waiting consumers when the transaction commits: PostgreSQL holds a notification back until then."""
        leadership = self._store._leadership
        if not borrowed.joined.is_two_phase and leadership.may_tell(queue):
            await borrowed.joined.fetch(b"SELECT pg_notify(%s, %s)", (self._schema, f"{_NO_PROCESS}:{queue}"))
        else:
            leadership.tell_after(borrowed.transaction_id, queue)

    def transaction(self, *, is_threaded: bool, queue: str | None = None) -> AbstractAsyncContextManager[Raw]:
        """Lend a connection in a transaction; every ``queue`` is in this database."""
        del queue
        return self._lending.plain_transaction() if is_threaded else self._lending.transaction()


@asynccontextmanager
async def transactions(
    store: PostgresStore, database: PostgresSettings, in_thread: InThread
) -> AsyncIterator[Transactions]:
    """Let programs have transactions for as long as this lasts."""
    lending = TransactionPool(database.url, is_pooled=database.is_pooled, in_thread=in_thread)
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
