"""HTTP/1.1 over sockets: a bounded pool of connections that are kept open.

Our own and small, because the price of a request decides how many a core can make: this takes some 20 µs of CPU more
than a bare socket does, general clients 150 to 250 µs. Spoken is what our server needs and no more: no redirects, no
cookies, no proxies, no compression.

Laws of the file
----------------
1. There are at most ``connections_max`` connections; who comes too late waits its turn.
2. A server may close a connection that is idle, at any time. If that meets a request on its way, the request goes
   once more on a fresh connection: if it is repeatable. One that is not avoids connections that have rested for long.
"""

import asyncio
import logging
import ssl
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from penstock.client.connection import Connection
from penstock.client.transport import Answer, Headers, NotSent, Unanswered
from penstock.frame import Buffer

logger = logging.getLogger("penstock.client")

CONNECTIONS_MAX = 100
CONNECT_S_MAX = 10.0
_RESTED_S = 1.0


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
        # What was closed is told so in the next turn of the loop.
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
        except OSError as error:
            raise self._lost(f": {error}") from error
        self._is_lost = False
        self._open.add(connection)
        return connection

    def _lost(self, reason: str) -> NotSent:
        """Say at once that there is no server: it may be tried again for a minute."""
        sentence = f"no connection to {self._address.authority}{'' if reason.startswith(':') else ' '}{reason}"
        if not self._is_lost:
            self._is_lost = True
            logger.warning("%s; is the server running? `penstock serve` starts one", sentence)
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
