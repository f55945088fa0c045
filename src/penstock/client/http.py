"""HTTP/1.1 over sockets: a bounded pool of connections that are kept open.

It is our own, because the CPU time of a request decides how many a core can make: this takes some 20 µs more than a
bare socket, general clients 150 to 250 µs. It has what our server needs and no more: no redirects, no cookies, no
proxies, no compression.

Laws of the file
----------------
1. There are at most ``connections_max`` connections; further requests wait for one.
2. A server may close a connection that is idle, at any time. If that meets a request on its way, the request goes
   once more on a fresh connection: if it is repeatable. One that is not avoids connections that have rested for long.

One HTTP/1.1 connection: a request goes out, an answer comes in, and then the next.

    opening ──► idle ──exchange──► waiting ──whole answer──► idle
                 │                    │
                 └──closed, noise─────┴──closed, broken, too large, too late, cancelled──► closed

Laws of the file
----------------
1. There is one request at a time. A request that is cancelled or fails closes the connection, so a late answer is
   never taken for another's.
2. What the server sends unasked closes the connection.
3. Headers and body are bounded, and a Content-Length beyond the limit is refused before the body is read.

Not done here: answers that end with the connection, as every server we speak to says a length or sends chunks;
and pipelining, as a lost connection would leave unclear which requests were done.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from penstock.client.caller import Answer, AnswerTooLarge, Headers, NotSent, Unanswered
from penstock.frame import Buffer

logger = logging.getLogger("penstock.client")

CONNECTIONS_MAX = 100
CONNECT_S_MAX = 10.0
_RESTED_S = 1.0
_NO_SERVER = "is the server running? `penstock serve` starts one"
_NO_TLS = "is it http:// that the server speaks there, or has it a certificate that is not trusted here?"


HEADER_BYTES_MAX = 65_536
# Several times what a server answers with at most: it hands out 16 MiB of bodies at once, with their other fields.
BODY_BYTES_MAX = 256 * 1024 * 1024
# Up to here one copy is cheaper than a second call of the system.
_COPIED_BYTES_MAX = 32_768
# Larger bodies are written in pieces, so that no more than this is copied into the transport's own memory.
_PIECE_BYTES = 262_144


class _TooLarge(Exception):
    """Raised through the parser."""


class Connection(asyncio.Protocol):
    """A connection. ``forget`` is called once, when it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, forget: Callable[["Connection"], None]) -> None:
        self._loop = loop
        self._forget = forget
        self._parser = HttpResponseParser(self)
        self._waiter: asyncio.Future[Answer] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._is_paused = False
        self._fault = ""
        # Of the answer, and of interim ones before it.
        self._arrived_bytes = 0
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
        self._begin()

    async def exchange(self, head: bytes, body: Buffer, timeout_s: float) -> Answer:
        """Send a request and return its answer. Raises `Unanswered` if the connection ends before."""
        assert self._waiter is None, "one request at a time"
        if not self.is_open:
            raise Unanswered("the server closed the connection")
        self.has_heard = False
        self._arrived_bytes = 0
        waiter: asyncio.Future[Answer] = self._loop.create_future()
        self._waiter = waiter
        self._set_deadline(timeout_s)
        try:
            if len(body) <= _COPIED_BYTES_MAX:
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
            self._fail(f"no answer within {self._timeout_s:g} s")
        else:
            self._timer = self._loop.call_at(self._deadline_s, self._ring)

    async def _write_in_pieces(self, head: bytes, body: memoryview, waiter: asyncio.Future[Answer]) -> None:
        self._transport.writelines((head, body[:_COPIED_BYTES_MAX]))
        for start in range(_COPIED_BYTES_MAX, len(body), _PIECE_BYTES):
            self._transport.write(body[start : start + _PIECE_BYTES])
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
        self._arrived_bytes += len(data)
        try:
            self._parser.feed_data(data)
            self._check_framing()
        except HttpParserUpgrade:
            self._fail("the server changed the protocol")
        except (HttpParserError, _TooLarge) as error:
            if self._fault:
                self._fail_with(AnswerTooLarge(self._fault))
            else:
                self._fail(f"the answer is not HTTP: {error}")

    def _check_framing(self) -> None:
        """Refuse headers, trailers and interim answers without end: the parser keeps what is not whole."""
        is_over = self._waiter is None or self._waiter.done()
        if not is_over and self._arrived_bytes - self._body_bytes > HEADER_BYTES_MAX + self._body_bytes // 8:
            self._refuse(f"what stands around the answer is larger than HEADER_BYTES_MAX ({HEADER_BYTES_MAX})")

    def connection_lost(self, error: Exception | None) -> None:
        self.is_dropped = self.is_open
        if self._timer is not None:
            self._timer.cancel()
        self._fail(f"the connection was lost: {error}" if error else "the server closed the connection")
        self.is_open = False
        self._forget(self)

    def _fail(self, reason: str) -> None:
        self._fail_with(Unanswered(reason))

    def _fail_with(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self._wake_writer()
        self.close()

    # What follows is called by the parser.

    def _begin(self) -> None:
        self._headers: dict[str, str] = {}
        self._header_bytes = 0
        self._chunks: list[bytes] = []
        self._body_bytes = 0

    def on_message_begin(self) -> None:
        self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEADER_BYTES_MAX:
            self._refuse(f"the headers of the answer are larger than HEADER_BYTES_MAX ({HEADER_BYTES_MAX})")
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        length = self._headers.get("content-length", "0")
        if len(length) > 18 or not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            self._refuse(f"the answer has {length[:30]} bytes; BODY_BYTES_MAX is {BODY_BYTES_MAX}")

    def on_body(self, chunk: bytes) -> None:
        self._body_bytes += len(chunk)
        if self._body_bytes > BODY_BYTES_MAX:
            self._refuse(f"the answer is larger than BODY_BYTES_MAX ({BODY_BYTES_MAX})")
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        if not self._parser.should_keep_alive():
            self.close()
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self._chunks = []
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(Answer(status, self._headers, body))
        self._wake_writer()

    def _refuse(self, reason: str) -> None:
        self._fault = reason
        raise _TooLarge(reason)


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


class HttpTransport:
    """Carries requests to one server. ``headers`` go with each of them."""

    def __init__(
        self,
        address: Address,
        *,
        headers: Headers = (),
        tls: ssl.SSLContext | None = None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._address = address
        self._tls = (tls or ssl.create_default_context()) if address.is_secure else None
        self._always = _render((("host", address.authority), *headers))
        self._turns = asyncio.Semaphore(connections_max)
        # The one that was used last is the last: it is the next to be used.
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._is_closed = False
        # Said once, until there is a connection again.
        self._is_lost = False

    async def request(
        self, method: str, path: str, *, headers: Headers, body: Buffer, timeout_s: float, is_repeatable: bool
    ) -> Answer:
        head = (
            f"{method} {self._address.prefix}{path} HTTP/1.1\r\n{self._always}{_render(headers)}"
            f"content-length: {len(body)}\r\n\r\n"
        ).encode("ascii")
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
            if now - connection.idle_since < _RESTED_S:
                return connection
            connection.close()
        return None

    async def _connect(self) -> Connection:
        if self._is_closed:
            raise NotSent("the client is closed")
        loop = asyncio.get_running_loop()
        host, port = self._address.host, self._address.port
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, self._forget), host, port, ssl=self._tls
                )
        except TimeoutError:
            raise self._lost(f"within {CONNECT_S_MAX:g} s") from None
        except ssl.SSLError as error:
            raise self._lost(f": {error}", _NO_TLS) from error
        except OSError as error:
            raise self._lost(f": {error}") from error
        self._is_lost = False
        self._open.add(connection)
        return connection

    def _lost(self, reason: str, advice: str = _NO_SERVER) -> NotSent:
        """Log at once that there is no server: retries may go on for a minute."""
        sentence = f"no connection to {self._address.authority}{'' if reason.startswith(':') else ' '}{reason}"
        if not self._is_lost:
            self._is_lost = True
            logger.warning("%s; %s", sentence, advice)
        return NotSent(sentence)

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
