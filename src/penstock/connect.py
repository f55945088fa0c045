"""`penstock.connect`: a client of a server, or of queues in this very process.

    http://host:port, https://…    a server
    http://host:port,host:port     several equal servers, of which one is used until it does not serve
    postgresql://…                 a store in a database, which many processes may have open
    PATTERN=postgresql://…,…       one in several databases, by the names of queues
    file:PATH                      a store in a folder, opened by this process alone
    memory:                        a store that is gone with the client, for tests

All but the first compose what a server is made of, without a port, and call its application directly: the same
requests, the same answers. The application is opened by the first call and closed with the client, in the client's
event loop.

Importing this brings in nothing of the server; only a client that needs it does.
"""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote

from penstock.client.blocking_http import BlockingTransport
from penstock.client.caller import TIMEOUT_S, Answer, Headers, NotSent, Transport, Unanswered
from penstock.client.client import Client
from penstock.client.errors import ConnectionFailed, DatabaseUnusable, TransactionRequired, WrongDatabase, error_of
from penstock.client.failover import addresses_of, transport_of
from penstock.client.http import HttpTransport, check_headers
from penstock.client.outbox import PENDING_BYTES_MAX
from penstock.client.topics.kafka import KafkaCredentials
from penstock.frame import Buffer
from penstock.settings import PREFIX, BadSetting, ClientSettings, ServerSettings, is_postgres, load
from penstock.wire.frames import Held, decode_send

if TYPE_CHECKING:
    from penstock.store.postgres.caller_transaction import Transactions
    from penstock.store.postgres.multi_database import RoutedTransactions

_OF_POSTGRES = f"{PREFIX}POSTGRES_"

Message = MutableMapping[str, Any]
AsgiApplication = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


def connect(
    url: str | None = None,
    *,
    key: str | None = None,
    timeout_s: float = TIMEOUT_S,
    pending_bytes_max: int = PENDING_BYTES_MAX,
    tls: ssl.SSLContext | None = None,
) -> Client:
    """Return a client. Nothing is opened before its first call.

    Without ``url`` or ``key`` the variables PENSTOCK_URL and PENSTOCK_KEY count. ``timeout_s`` is how long a call is
    tried for, ``pending_bytes_max`` how much may wait to be sent, and ``tls`` says whom to trust over https.
    """
    options = {"url": url, "key": key}
    settings = load(ClientSettings, options=options, environment=os.environ, file=None).settings
    open_transport, open_blocking = _transports(settings.url, settings.key, tls)
    return Client(
        open_transport,
        open_blocking=open_blocking,
        timeout_s=timeout_s,
        pending_bytes_max=pending_bytes_max,
        kafka=KafkaCredentials(settings.key, settings.url.startswith("https:"), tls),
    )


def _transports(
    url: str, key: str, tls: ssl.SSLContext | None
) -> tuple[Callable[[], Transport], Callable[[], Transport] | None]:
    """How to open a transport in an event loop, and one that needs none, if there is such a one."""
    headers: Headers = (("authorization", f"Bearer {key}"),) if key else ()
    check_headers(headers)
    if is_postgres(url) or url == "memory:" or url.startswith("file:"):
        opened = partial(_open_application, _settings(url))
        kind = DatabaseTransport if is_postgres(url) else InProcessTransport
        return lambda: kind(opened, headers=headers), None
    if "://" not in url:
        raise ValueError(
            f"url is {url!r}; it is http://host:port, https://host:port, postgresql://…, file:PATH or memory:"
        )
    addresses = addresses_of(url)
    return (
        lambda: transport_of(addresses, partial(HttpTransport, headers=headers, tls=tls)),
        lambda: transport_of(addresses, partial(BlockingTransport, headers=headers, tls=tls)),
    )


def _settings(url: str) -> ServerSettings:
    if url.startswith("file:"):
        folder = url.removeprefix("file:").removeprefix("//")
        if not folder:
            raise ValueError(f"url is {url!r}; it must name a folder, such as file:./data")
        return ServerSettings(data=Path(folder), kafka=False)
    # Of a database more can be said than fits into its URL, and in the words that a server has for it.
    said = {name: value for name, value in os.environ.items() if name.startswith(_OF_POSTGRES)}
    return load(ServerSettings, options={"store": url, "kafka": False}, environment=said, file=None).settings


@asynccontextmanager
async def _open_application(settings: ServerSettings) -> AsyncIterator["Opened"]:
    from penstock.metrics.health import Health  # noqa: PLC0415 - the server is heavy, and most clients need none.
    from penstock.server import open_application  # noqa: PLC0415

    async with open_application(settings) as application:
        health = Health()
        health.look = application.journals
        asgi, now_ms = application.rest(health.routes()), application.queues.now_ms
        yield Opened(asgi, application.stop, application.transactions, now_ms)


class Opened(NamedTuple):
    """An open application, and how to make it answer all waiting requests."""

    asgi: AsgiApplication
    stop: Callable[[], None]
    # Of a store in a database.
    transactions: "Transactions | RoutedTransactions | None" = None
    now_ms: Callable[[], int] | None = None


class InProcessTransport:
    """Calls an ASGI application. A task of its own opens it and closes it, as what is in it must end where it began."""

    def __init__(
        self, open_application: Callable[[], AbstractAsyncContextManager[Opened]], *, headers: Headers
    ) -> None:
        self._open_application = open_application
        self._headers = headers
        self._owner: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[Opened] | None = None
        # Once it is open, and until the client is closed.
        self._application: Opened | None = None
        self._closing = asyncio.Event()
        self._requests: set[asyncio.Task[None]] = set()

    async def request(
        self, method: str, path: str, *, headers: Headers, body: Buffer, timeout_s: float, is_repeatable: bool
    ) -> Answer:
        del is_repeatable
        application = self._application or await self._open()
        exchange = Exchange(body)
        call = application.asgi(self._scope(method, path, headers, len(body)), exchange.receive, exchange.send)
        # As with a server, a request goes on after its caller is cancelled: so it is a task of its own.
        task = asyncio.create_task(cast("Any", call))  # noqa: TID251 - `close` awaits it.
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        try:
            await asyncio.wait([task], timeout=timeout_s)
        finally:
            exchange.is_left.set()
        if not task.done():
            raise Unanswered(f"no answer within {timeout_s:g} s")
        if task.cancelled():
            raise Unanswered("the client was closed")
        task.result()
        return exchange.answer()

    async def close(self) -> None:
        self._closing.set()
        self._application = None
        if self._owner is not None:
            await asyncio.wait([self._owner])
            self._owner.result()

    async def _open(self) -> Opened:
        if self._closing.is_set():
            raise NotSent("the client is closed")
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            self._owner = asyncio.create_task(self._own(self._opened))  # noqa: TID251 - `close` awaits it.
        return await asyncio.shield(self._opened)

    async def _own(self, opened: "asyncio.Future[Opened]") -> None:
        """Have the application open for as long as the client is."""
        try:
            async with self._open_application() as application:
                opened.set_result(application)
                if not self._closing.is_set():
                    self._application = application
                await self._closing.wait()
                if self._requests:
                    application.stop()
                    await asyncio.wait(self._requests)
        except Exception as error:
            if opened.done():
                raise
            # The callers get the error. The next call tries again: a database may be back by then.
            self._opened = None
            opened.set_exception(_told(error))
            opened.exception()

    def _scope(self, method: str, path: str, headers: Headers, length: int) -> Message:
        path, _, query = path.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [*_encoded(self._headers), *_encoded(headers), (b"content-length", b"%d" % length)],
            "client": None,
            "server": None,
        }


@lru_cache(maxsize=64)
def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]


class DatabaseTransport(InProcessTransport):
    """Queues in a database, where the caller may have a transaction: a `client.caller.TransactionalTransport`."""

    async def send_within(self, connection: Any, queue: str, frame: bytes) -> Sequence[str]:
        from penstock.api.rest.send import drafts_of_frame  # noqa: PLC0415 - of the server, which is open by now.

        transactions, now_ms = await self._transactions()
        with _as_answered():
            return await transactions.send(connection, queue, drafts_of_frame(decode_send(frame), now_ms))

    async def ack_within(self, connection: Any, queue: str, held: Sequence[Held]) -> bool:
        from penstock.core.queue.message import HeldReceipts  # noqa: PLC0415

        transactions, _ = await self._transactions()
        with _as_answered():
            receipts = HeldReceipts({(lease, token): rows for lease, token, rows in held})
            return await transactions.ack(connection, queue, receipts)

    @asynccontextmanager
    async def transaction(self, *, is_threaded: bool, queue: str | None = None) -> AsyncIterator[Any]:
        transactions, _ = await self._transactions()
        async with transactions.transaction(is_threaded=is_threaded, queue=queue) as connection:
            yield connection

    async def _transactions(self) -> "tuple[Transactions | RoutedTransactions, Callable[[], int]]":
        try:
            opened = await self._open()
        except NotSent as error:
            failed = ConnectionFailed(str(error))
            failed.is_sent = False
            raise failed from error
        assert opened.transactions is not None
        assert opened.now_ms is not None
        return opened.transactions, opened.now_ms


@contextmanager
def _as_answered() -> Iterator[None]:
    """Raise what a client raises for the answer that an error would get; the database's own errors as they are.

    There is no HTTP request, as the caller is in the same process. Errors have the same words as over HTTP.
    """
    from penstock.api.rest.errors import encode_problem, problem_of  # noqa: PLC0415
    from penstock.store.postgres import caller_transaction  # noqa: PLC0415 - of the server, which is open by now.

    try:
        yield
    except caller_transaction.QueueElsewhere as error:
        raise WrongDatabase(str(error), code="queue_elsewhere") from error
    except caller_transaction.NotInTransaction as error:
        raise TransactionRequired(str(error), code="not_transactional") from error
    except Exception as error:
        found = problem_of(error)
        if found is None:
            raise
        raise error_of(found.status, {}, encode_problem(found)[0]) from error


def _told(error: Exception) -> Exception:
    """Return what a client is told if its queues could not be opened.

    A database that does not answer may do so soon, as a server may: so it is asked for again until the time is over.
    """
    from penstock.store.errors import (  # noqa: PLC0415
        StoreForbids,
        StoreTurnsAway,
        StoreUnfit,
        StoreUnreachable,
    )

    told: Exception
    if isinstance(error, StoreTurnsAway | StoreUnfit | StoreForbids | BadSetting):
        told = DatabaseUnusable(str(error), code="not_opened")
    elif isinstance(error, StoreUnreachable):
        told = NotSent(str(error))
    else:
        return error
    told.__cause__ = error
    return told


class Exchange:
    """One request and its answer, in the words of ASGI."""

    def __init__(self, body: Buffer) -> None:
        self._body: Buffer | None = body
        # Set when the caller does not wait for the answer any more.
        self.is_left = asyncio.Event()
        self._start: Message = {}
        self._parts: list[bytes] = []

    async def receive(self) -> Message:
        if self._body is None:
            await self.is_left.wait()
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        else:
            self._parts.append(message.get("body", b""))

    def answer(self) -> Answer:
        if not self._start:
            raise Unanswered("the application gave no answer")
        status, headers = self._start["status"], {}
        if status >= 400:
            # Of other answers the body says everything.
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._start["headers"]}
        return Answer(status, headers, b"".join(self._parts))


class _CallableModule(ModuleType):
    """`penstock.connect` is this module once it was imported, and the function before: both can be called."""

    __call__ = staticmethod(connect)


sys.modules[__name__].__class__ = _CallableModule
