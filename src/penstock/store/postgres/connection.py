"""One connection: how it is opened within bounds, how functions are called on it, and how it is closed by force.

    prepare (once for a connection) → send the call → wait until the socket has something → read → … → one row

Calls use libpq directly. A psycopg cursor inspects the types of its values at each call, watches the socket for that
one call, and costs as much as the database does. Here a value is sent as the function declares it, and the socket is
watched for as long as the connection lives.

A server that disappears sends nothing, and the kernel would wait for it about a quarter of an hour. So every
connection has bounds, unless its URL sets its own, and a useless one is closed by shutting down the socket on our
side: every call that waits on it fails, also inside the driver.

Laws of this file
-----------------
1. One call at a time: a session is used only by its borrower.
2. A failed socket is unwatched before another one can be opened, because the number of the descriptor is reused.
3. A cancelled call is cancelled in the server, too. If that takes long, the session is left in
   the middle of it, and its owner closes it.
4. Prepared statements may vanish: after a rollback the driver deallocates all of a connection. A
   call that misses its statement prepares it again, under a new name.
5. A server that shuts down before reading a call sends the reason, then resets the connection.
   uvloop reports that only once, with something left to read, so the socket is watched again
   before every further wait.
6. A commit whose wait for a synchronous standby was cancelled, by us or by an operator, succeeds with a
   warning. It is known by the function of PostgreSQL that it comes from, and raised as `CommitUnconfirmed`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection, adapt, errors, pq
from psycopg.abc import PQGen, Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from penstock.runtime.sockets import shut_down
from penstock.store.errors import OutcomeUnknown, StoreUnfit, StoreUnreachable
from penstock.store.postgres.statements import SqlFunction

RV = TypeVar("RV")
AnyConnection: TypeAlias = psycopg.AsyncConnection[Any] | psycopg.Connection[Any]

# Of a connection over TCP the kernel asks after one that is silent, and gives up one that does not confirm what it was
# sent: that matters where no call waits for an answer, as for notifications.
_BOUNDS: dict[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
# As texts are written in every database, also in one that has not said how its own are (SQL_ASCII): else they would be
# read as bytes.
_ENCODING = "UTF8"
_CLOSE_S_MAX = 2.0


class BadUrl(StoreUnfit):
    """This is no URL of a database, or it has an option that there is not."""


class BoundedConnection(psycopg.AsyncConnection[Any]):
    """A connection that is hung up when a call is to be cancelled and the server does not hear of it."""

    async def cancel_safe(self, *, timeout: float = _CLOSE_S_MAX) -> None:  # noqa: ASYNC109 - as the driver has it.
        try:
            await super().cancel_safe(timeout=min(timeout, _CLOSE_S_MAX))
        except errors.CancellationTimeout:
            close_socket(self)
            raise

    async def wait(self, gen: PQGen[RV], *arguments: Any, **named: Any) -> RV:
        try:
            return await super().wait(gen, *arguments, **named)
        except psycopg.OperationalError:
            # The driver asks once more after a cancellation, and what that fails with must not hide it.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from None
            raise


def bounded(url: str, **others: int) -> str:
    """Return how to connect so that a server that is gone is noticed; what the URL says itself counts.

    >>> bounded("postgresql://db?connect_timeout=3&tcp_user_timeout=0").removeprefix("connect_timeout=3 host=db ")
    'tcp_user_timeout=0 client_encoding=UTF8 keepalives_idle=10 keepalives_interval=5 keepalives_count=3'
    """
    said = _said(url)
    bounds = {name: value for name, value in {**_BOUNDS, **others}.items() if name not in said}
    return make_conninfo(url, client_encoding=_ENCODING, **bounds)


def unanswered(url: str) -> str:
    """Return what to say of a database that does not answer, and what can be done; no password is in it."""
    said = _said(url)
    place = said.get("hostaddr") or said.get("host") or "this machine"
    return (
        f"the database at {place}, port {said['port']}, does not answer: look whether it runs, and whether a firewall "
        "or a wrong address is in the way. It has the seconds that connect_timeout of its URL says, or ten"
    )


def _said(url: str) -> dict[str, Any]:
    """What a URL says, and the environment where that says nothing."""
    defaults = {each.keyword.decode(): each.val.decode() for each in pq.Conninfo.get_defaults() if each.val}
    try:
        return {**defaults, **conninfo_to_dict(url)}
    except psycopg.ProgrammingError as error:
        # It may quote the URL, and a password with it.
        reason = str(error).replace(url, "…").strip()
        raise BadUrl(f"the URL of the database cannot be read: {reason}") from None


def close_socket(connection: AnyConnection) -> None:
    """Shut down the socket of a connection: every call that waits on it fails."""
    if not connection.closed:
        shut_down(connection.fileno())


@contextmanager
def answered_within(connection: AnyConnection, wait_s: float) -> Iterator[None]:
    """Close the socket of a connection if this takes longer: its call then fails with an `OperationalError`."""
    timer = asyncio.get_running_loop().call_later(wait_s, close_socket, connection)
    try:
        yield
    finally:
        timer.cancel()


Arguments: TypeAlias = Sequence[Any] | Mapping[str, Any]
_FAILED = ExecStatus.FATAL_ERROR
CANCEL_S_MAX = 5.0


class ConnectionLost(StoreUnreachable):
    """The connection broke, and what it was asked for may be done or not."""


class ConnectFailed(ConnectionLost):
    """No connection could be made, so nothing was asked for."""


class ConnectionTimedOut(ConnectFailed):
    """The database did not answer in time."""


class CommitUnconfirmed(OutcomeUnknown):
    """A commit was made, and no synchronous standby confirmed it in time: a promotion may lose it."""


# Texts of warnings are in the language of the server; names of its functions are not.
_CANCELLED_WAIT = "SyncRepWaitForLSN"


class _Prepared:
    """A function that is prepared on a connection, and what reads its answers."""

    __slots__ = ("name", "_reader", "_has_loaders")

    def __init__(self, name: bytes, reader: Transformer) -> None:
        self.name = name
        self._reader = reader
        self._has_loaders = False

    def read(self, result: PGresult) -> tuple[Any, ...]:
        # How a column is read is found at the first answer: all have the same columns.
        self._reader.set_pgresult(result, set_loaders=not self._has_loaders)
        self._has_loaders = True
        return self._reader.load_row(0, tuple) or ()


class Session:
    __slots__ = (
        "connection", "lent_s", "_pgconn", "_cursor", "_prepared", "_names", "_loop", "_watched", "_waiter", "_result",
        "_cancel_s_max",
        "_is_unconfirmed", "_on_unconfirmed",
    )  # fmt: skip

    def __init__(
        self,
        connection: AsyncConnection,
        on_unconfirmed: Callable[[], None] = lambda: None,
        *,
        cancel_s_max: float = CANCEL_S_MAX,
    ) -> None:
        self.connection = connection
        # Called when a commit was not confirmed.
        self._on_unconfirmed = on_unconfirmed
        # When it was lent last, by the clock of the loop.
        self.lent_s = 0.0
        self._cancel_s_max = cancel_s_max
        # Whether the wait of a commit was cancelled.
        self._is_unconfirmed = False
        connection.add_notice_handler(self._notice)
        self._pgconn = connection.pgconn
        self._cursor = connection.cursor(binary=True)
        self._prepared: dict[SqlFunction, _Prepared] = {}
        self._names = (b"penstock_%d" % number for number in count())
        self._loop = asyncio.get_running_loop()
        # The socket, while it is watched.
        self._watched: int | None = None
        self._waiter: asyncio.Future[PGresult] | None = None
        self._result: PGresult | None = None

    @property
    def is_idle(self) -> bool:
        return not self.connection.closed and self._pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def pid(self) -> int:
        """The process id of its server process, as the server has sent it."""
        return self._pgconn.backend_pid

    def close_socket(self) -> None:
        """Make the call that waits for an answer fail."""
        close_socket(self.connection)

    async def close(self) -> None:
        self._unwatch()
        await self.connection.close()

    async def cancel_wait(self) -> None:
        """Cancel what the server does for this session: a commit that waits for a standby ends without it."""
        with suppress(psycopg.Error):
            await self.connection.cancel_safe()

    def _notice(self, notice: errors.Diagnostic) -> None:
        if notice.source_function == _CANCELLED_WAIT:
            self._is_unconfirmed = True

    def _check_confirmed(self) -> None:
        if self._is_unconfirmed:
            self._is_unconfirmed = False
            self._on_unconfirmed()
            raise CommitUnconfirmed(
                "no synchronous standby confirmed the commit in time, so it may be lost: ask again, which finds out"
            )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Lend the connection for a transaction."""
        # Cursors watch the socket by themselves.
        self._unwatch()
        try:
            async with self.connection.transaction():
                yield self.connection
            self._check_confirmed()
        except psycopg.Error as error:
            if self.connection.closed:
                raise ConnectionLost(str(error)) from error
            raise

    async def execute(self, text: bytes, values: Arguments) -> list[Any]:
        """Run any statement, and return its rows."""
        # Cursors watch the socket by themselves.
        self._unwatch()
        try:
            await self._cursor.execute(text, values)
            self._check_confirmed()
            return await self._cursor.fetchall()
        except psycopg.Error as error:
            if self.connection.closed:
                raise ConnectionLost(str(error)) from error
            raise

    async def call(self, made: SqlFunction, values: Sequence[bytes | None]) -> Any:
        """Call one of our functions, with its values as they are sent, and return the one row it answers with."""
        try:
            try:
                return await self._called(made, values)
            except errors.InvalidSqlStatementName:
                # So nothing was done.
                self._prepared.clear()
                return await self._called(made, values)
        except psycopg.Error as error:
            if self.connection.closed:
                self._unwatch()
                raise ConnectionLost(str(error)) from error
            raise

    async def _called(self, made: SqlFunction, values: Sequence[bytes | None]) -> Any:
        prepared = self._prepared.get(made) or await self._prepare(made)
        self._pgconn.send_query_prepared(prepared.name, values, made.formats, Format.BINARY)
        return prepared.read(await self._answer())

    async def _prepare(self, made: SqlFunction) -> "_Prepared":
        prepared = _Prepared(next(self._names), adapt.Transformer(self.connection))
        self._pgconn.send_prepare(prepared.name, made.direct_text, made.kinds)
        await self._answer()
        self._prepared[made] = prepared
        return prepared

    async def _answer(self) -> PGresult:
        if self._watched is None:
            self._watched = self._pgconn.socket
            self._loop.add_reader(self._watched, self._on_readable)
        if self._pgconn.flush():
            self._loop.add_writer(self._watched, self._on_writable)
        self._waiter = self._loop.create_future()
        try:
            result = await self._waiter
        except asyncio.CancelledError:
            await self._cancel()
            raise
        if result.status == _FAILED:
            raise error_from_result(result)
        if self._is_unconfirmed:
            self._check_confirmed()
        return result

    async def _cancel(self) -> None:
        try:
            async with asyncio.timeout(self._cancel_s_max):
                await self.connection.cancel_safe(timeout=self._cancel_s_max)
                if not self.is_idle:
                    self._waiter = self._loop.create_future()
                    await self._waiter
        except (psycopg.Error, TimeoutError):
            # Its owner sees that it is not idle.
            pass
        # No caller gets an answer.
        self._is_unconfirmed = False

    def _on_readable(self) -> None:
        pgconn = self._pgconn
        try:
            pgconn.consume_input()
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    self._settle()
                    return
                self._result = result
            self._watch_again()
        except psycopg.Error as error:
            self._fail(error)

    def _watch_again(self) -> None:
        """Watch for the rest of an answer: of a connection that was reset uvloop tells but once (law 5)."""
        if self._watched is not None:
            self._loop.remove_reader(self._watched)
            self._loop.add_reader(self._watched, self._on_readable)

    def _on_writable(self) -> None:
        try:
            if self._pgconn.flush() == 0 and self._watched is not None:
                self._loop.remove_writer(self._watched)
        except psycopg.Error as error:
            self._fail(error)

    def _settle(self) -> None:
        if self._waiter is not None and not self._waiter.done() and self._result is not None:
            self._waiter.set_result(self._result)
        self._waiter = self._result = None

    def _fail(self, error: psycopg.Error) -> None:
        self._unwatch()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self._waiter = self._result = None

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._loop.remove_reader(self._watched)
            self._loop.remove_writer(self._watched)
            self._watched = None
