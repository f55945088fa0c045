"""HTTP/1.1 over sockets of an event loop: a bounded pool of connections that are kept open.

It is our own, because the CPU time of a request decides how many a core can make: this takes some 20 µs more than a
bare socket, general clients 150 to 250 µs. It has what our server needs and no more: no redirects, no cookies, no
proxies, no compression. `blocking_http.py` is the same for programs without an event loop.

One connection: a request goes out, an answer comes in, and then the next.

    opening ──► idle ──exchange──► waiting ──whole answer──► idle
                 │                    │
                 └──closed, noise─────┴──closed, broken, too large, too late, cancelled──► closed

Laws of both transports
-----------------------
1. There are at most ``connections_max`` connections; further requests wait for one.
2. A server may close a connection that is idle, at any time. If that meets a request on its way, the request goes
   once more on a fresh connection: if it is repeatable. One that is not avoids connections that have rested for long.
3. There is one request at a time on a connection. A request that is cancelled or fails closes it, so a late answer is
   never taken for another's. What the server sends unasked closes it, too.

Not done here: pipelining, as a lost connection would leave unclear which requests were done.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast
from urllib.parse import urlsplit

from penstock.client.caller import Answer, AnswerTooLarge, Headers, NotSent, Unanswered
from penstock.client.http_answer import AnswerParser
from penstock.frame import Buffer

logger = logging.getLogger("penstock.client")

CONNECTIONS_MAX = 100
CONNECT_S_MAX = 10.0
RESTED_S = 1.0
_NO_SERVER = "is the server running? `penstock serve` starts one"
_NO_TLS = "is it http:// that the server speaks there, or has it a certificate that is not trusted here?"

# Up to here one copy is cheaper than a second call of the system.
COPIED_BYTES_MAX = 32_768
# Larger bodies are written in pieces, so that no more than this is copied into the transport's own memory.
PIECE_BYTES = 262_144


class Connection(asyncio.Protocol):
    """A connection. ``forget`` is called once, when it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, forget: Callable[["Connection"], None]) -> None:
        self._loop = loop
        self._forget = forget
        self._parser = AnswerParser()
        self._waiter: asyncio.Future[Answer] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._is_paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._timeout_s = self._deadline_s = 0.0
        # Whether a byte of the answer that is waited for has come.
        self.has_heard = False
        self.is_open = True
        # Whether the other side closed it, and not we for a reason of ours.
        self.is_dropped = False
        # When it was last used, by the clock of the loop.
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    async def exchange(self, head: bytes, body: Buffer, timeout_s: float) -> Answer:
        """Send a request and return its answer. Raises `Unanswered` if the connection ends before."""
        assert self._waiter is None, "one request at a time"
        if not self.is_open:
            raise Unanswered("the server closed the connection")
        self.has_heard = False
        self._parser.begin()
        waiter: asyncio.Future[Answer] = self._loop.create_future()
        self._waiter = waiter
        self._set_deadline(timeout_s)
        try:
            if len(body) <= COPIED_BYTES_MAX:
                self._transport.write(head + body)
            else:
                await self._write_in_pieces(head, memoryview(body), waiter)
            return await waiter
        except BaseException:
            self.close()
            raise
        finally:
            self._waiter = None

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._transport.abort()

    def _set_deadline(self, timeout_s: float) -> None:
        """Set the timer, unless it rings early enough: so most requests need not, and it looks again when it rings."""
        self._timeout_s = timeout_s
        self._deadline_s = self._loop.time() + timeout_s
        if self._timer is not None:
            if self._timer.when() <= self._deadline_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() >= self._deadline_s:
            self._fail(Unanswered(f"no answer within {self._timeout_s:g} s"))
        else:
            self._timer = self._loop.call_at(self._deadline_s, self._ring)

    async def _write_in_pieces(self, head: bytes, body: memoryview, waiter: asyncio.Future[Answer]) -> None:
        self._transport.writelines((head, body[:COPIED_BYTES_MAX]))
        for start in range(COPIED_BYTES_MAX, len(body), PIECE_BYTES):
            self._transport.write(body[start : start + PIECE_BYTES])
            if self._is_paused:
                self._drained = self._loop.create_future()
                await self._drained
            if waiter.done():
                # An answer before the end of the request refuses it: the rest need not be sent, and what follows on
                # this connection would not be understood.
                self.close()
                return

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._wake_writer()

    def _wake_writer(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.close()
            return
        self.has_heard = True
        try:
            answer = self._parser.feed(data)
        except (AnswerTooLarge, Unanswered) as error:
            self._fail(error)
            return
        if answer is not None:
            if self._parser.is_last:
                self.close()
            self._waiter.set_result(answer)
            self._wake_writer()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_dropped = self.is_open
        if self._timer is not None:
            self._timer.cancel()
        self._fail(Unanswered(f"the connection was lost: {error}" if error else "the server closed the connection"))
        self.is_open = False
        self._forget(self)

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self._wake_writer()
        self.close()


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is: the parts of its URL."""

    host: str
    port: int
    is_secure: bool
    # Before every path; without a slash at its end.
    prefix: str = ""

    @classmethod
    def of(cls, url: str) -> "Address":
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url is {url!r}; it must be http://host:port or https://host:port")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError(f"url is {url!r}; it has no query, fragment or user name: a key is given as `key`")
        is_secure = parts.scheme == "https"
        port = parts.port if parts.port is not None else (443 if is_secure else 80)
        return cls(parts.hostname, port, is_secure, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_secure else 80) else f"{host}:{self.port}"


class Endpoint:
    """A server, as requests name it. ``headers`` go with each of them."""

    def __init__(self, address: Address, headers: Headers = ()) -> None:
        self.address = address
        self._always = _render((("host", address.authority), *headers))
        # Said once, until there is a connection again.
        self._is_lost = False

    def head(self, method: str, path: str, headers: Headers, length: int) -> bytes:
        """Return what stands before the body of a request."""
        return (
            f"{method} {self.address.prefix}{path} HTTP/1.1\r\n{self._always}{_render(headers)}"
            f"content-length: {length}\r\n\r\n"
        ).encode("ascii")

    def found(self) -> None:
        """There is a connection."""
        self._is_lost = False

    def lost(self, error: OSError) -> NotSent:
        """There is no connection. Log it at once: retries may go on for a minute."""
        # A message of its own: that of the standard library says only that time ran out.
        reason = f" within {CONNECT_S_MAX:g} s" if isinstance(error, TimeoutError) else f": {error}"
        sentence = f"no connection to {self.address.authority}{reason}"
        if not self._is_lost:
            self._is_lost = True
            logger.warning("%s; %s", sentence, _NO_TLS if isinstance(error, ssl.SSLError) else _NO_SERVER)
        return NotSent(sentence)


def tls_of(address: Address, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    return (tls or ssl.create_default_context()) if address.is_secure else None


class HttpTransport:
    """Carries requests to one server, in one event loop. ``headers`` go with each of them."""

    def __init__(
        self,
        address: Address,
        *,
        headers: Headers = (),
        tls: ssl.SSLContext | None = None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._endpoint = Endpoint(address, headers)
        self._tls = tls_of(address, tls)
        self._turns = asyncio.Semaphore(connections_max)
        # The one that was used last is the last: it is the next to be used.
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._is_closed = False

    async def request(
        self, method: str, path: str, *, headers: Headers, body: Buffer, timeout_s: float, is_repeatable: bool
    ) -> Answer:
        head = self._endpoint.head(method, path, headers, len(body))
        async with self._turns:
            connection = self._take_rested(is_repeatable)
            if connection is not None:
                try:
                    return await self._exchange(connection, head, body, timeout_s)
                except Unanswered:
                    if connection.has_heard or not connection.is_dropped or not is_repeatable:
                        raise
            return await self._exchange(await self._connect(), head, body, timeout_s)

    async def close(self) -> None:
        self._is_closed = True
        for connection in list(self._open):
            connection.close()
        # The loop reports closed connections in its next turn.
        await asyncio.sleep(0)

    async def _exchange(self, connection: Connection, head: bytes, body: Buffer, timeout_s: float) -> Answer:
        answer = await connection.exchange(head, body, timeout_s)
        if connection.is_open:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        return answer

    def _take_rested(self, is_repeatable: bool) -> Connection | None:
        if not self._idle:
            return None
        now = 0.0 if is_repeatable else asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_open:
                continue
            if now - connection.idle_since < RESTED_S:
                return connection
            connection.close()
        return None

    async def _connect(self) -> Connection:
        if self._is_closed:
            raise NotSent("the client is closed")
        loop = asyncio.get_running_loop()
        host, port = self._endpoint.address.host, self._endpoint.address.port
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, self._forget), host, port, ssl=self._tls
                )
        except OSError as error:
            raise self._endpoint.lost(error) from error
        self._endpoint.found()
        self._open.add(connection)
        return connection

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


def check_headers(headers: Headers) -> None:
    """Raise `ValueError` for a value that would end its header early, and write the rest of the request itself."""
    for name, value in headers:
        if not value.isprintable() or not value.isascii():
            raise ValueError(f"the header {name} has a character that a header cannot have")


@lru_cache(maxsize=64)
def _render(headers: Headers) -> str:
    check_headers(headers)
    return "".join(f"{name}: {value}\r\n" for name, value in headers)
