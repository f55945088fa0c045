"""What all HTTP front ends share: the types of ASGI, reading a body within a limit, noticing that a client is gone, and
passing each request of the port to the front end of its protocol.

Nothing here knows a protocol. Each front end turns `TooLong` and `ClientDisconnected` into its own errors.

A body of 16 MB can hold millions of values. Decoded, each becomes a Python object; together they take a gigabyte and
block the event loop for seconds. So the values of a large body are counted before it is decoded:

1. Text and binary data are one value each, however long: the limit is on structure, not on size.
2. Counting takes less time than decoding what is allowed. Callers skip small bodies, which cannot hold many values.
3. A malformed body is counted as far as it can be read. The decoder reports what is wrong with it.

Pages, styles and scripts for browsers are files of the package, without a build. The `Content-Security-Policy` of a
page allows nothing from elsewhere and no script inside of a page, so that no message shown on it can become one.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApplication = Callable[[Scope, Receive, Send], Awaitable[None]]

# Where an application says, in the scope, what operation a request was; for the metrics.
OPERATION = "penstock.operation"


def source_of(scope: Scope) -> str:
    """Return the address that a request came from, of a proxy perhaps; "" if it came from no network."""
    client = scope.get("client")
    return str(client[0]) if client else ""


class ClientDisconnected(Exception):
    """The client closed its connection before its request was read, so there is no one to answer."""


class TooLong(Exception):
    """A body is longer than it may be: it has ``size_bytes``, or more."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"a body of {size_bytes} bytes or more")
        self.size_bytes = size_bytes


async def read_body(receive: Receive, bytes_max: int) -> bytes:
    """Return the whole body; one that is too long is refused as soon as it shows."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > bytes_max:
            raise TooLong(len(body))
        return body
    parts = [body]
    size = len(body)
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        part = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise TooLong(size)
        parts.append(part)
    return b"".join(parts)


# Calls what it is given when a client is no longer let in, and returns how to stop that.
Watch = Callable[[Callable[[], None]], Callable[[], None]]


class ClientPresence:
    """Watches whether a client that waits is still there, and still let in; satisfies `broker.long_polls.Absence`."""

    __slots__ = ("_scope", "_receive", "_watch_key", "_gone", "_watching", "_stop")

    def __init__(self, scope: Scope, receive: Receive, watch_key: Watch) -> None:
        self._scope = scope
        self._receive = receive
        self._watch_key = watch_key
        self._gone: asyncio.Future[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stop: Callable[[], None] | None = None

    @property
    def is_gone(self) -> bool:
        return self._gone is not None and self._gone.done()

    def watch(self) -> "asyncio.Future[None]":
        # Our own listener says it without a task, which would cost as much as the rest of a long poll.
        departure = self._scope.get("penstock.departure")
        if self._gone is None and departure is not None:
            self._gone = departure()
        elif self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
            self._watching = asyncio.create_task(self._watch(self._gone))  # noqa: TID251 - `end` awaits it.
        if self._stop is None:
            self._stop = self._watch_key(self._leave)
        return self._gone

    def _leave(self) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def _watch(self, gone: "asyncio.Future[None]") -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not gone.done():
            gone.set_result(None)

    async def end(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
            # It holds its own end, with the frames it came from, and so us.
            self._watching = None


class ProtocolDispatch:
    """An ASGI application before two others: ``special`` gets what is for it, ``usual`` the rest."""

    def __init__(
        self, *, usual: ASGIApplication, special: ASGIApplication, is_for_special: Callable[[Scope], bool]
    ) -> None:
        self._usual = usual
        self._special = special
        self._is_for_special = is_for_special

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        chosen = self._special if self._is_for_special(scope) else self._usual
        return chosen(scope, receive, send)


# By the first byte of a value in MessagePack: how many bytes follow, or, negative, in how many bytes that is said.
_FOLLOWING = [0] * 256
for _first in range(0xA0, 0xC0):
    _FOLLOWING[_first] = _first - 0xA0
for _first, _bytes in (
    *zip(range(0xC4, 0xCA), (-1, -2, -4, -1, -2, -4), strict=True),
    *zip(range(0xCA, 0xD4), (4, 8, 1, 2, 4, 8, 1, 2, 4, 8), strict=True),
    *zip(range(0xD4, 0xD9), (2, 3, 5, 9, 17), strict=True),
    *zip(range(0xD9, 0xDC), (-1, -2, -4), strict=True),
    *zip(range(0xDC, 0xE0), (2, 4, 2, 4), strict=True),
):
    _FOLLOWING[_first] = _bytes
# They have a byte for their type beside their length.
_EXTENSIONS = range(0xC7, 0xCA)


def has_more_in_json(body: bytes, most: int) -> bool:
    """Whether a body of JSON separates more than ``most`` values."""
    if body.count(b",") <= most:
        return False
    # Those in texts do not count. What is escaped would hide where a text ends.
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A member of an object has four quotes at most: of its name, and of its value.
    return body.count(b'"') > 4 * most or b"".join(body.split(b'"')[::2]).count(b",") > most


def has_more_in_msgpack(body: bytes, most: int) -> bool:
    """Whether a body of MessagePack holds more than ``most`` values; a list or a map is one, and so are its members."""
    at = found = 0
    end = len(body)
    while at < end and found <= most:
        first = body[at]
        following = _FOLLOWING[first]
        at += 1
        if following < 0:
            said = body[at : at - following]
            at += len(said) + int.from_bytes(said, "big") + (first in _EXTENSIONS)
        else:
            at += following
        found += 1
    return found > most


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_GUARDS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # Asked for again each time, and answered with 304 while it is the same: a new version is seen at once.
    "cache-control": "no-cache",
}
CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class PageFile(NamedTuple):
    body: bytes
    content_type: str
    tag: str


def answer(request: Request, file: PageFile, more: dict[str, str] | None = None) -> Response:
    """Answer with a file, or with 304 to a browser that has it."""
    headers = {"etag": file.tag, **_GUARDS, **(more or {})}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers={"content-type": file.content_type, **headers})


def answer_page(request: Request, file: PageFile, more: dict[str, str] | None = None) -> Response:
    """Answer with a page, or a part of one, under the policy."""
    return answer(request, file, {"content-security-policy": POLICY, **(more or {})})


@cache
def page_file(package: str, name: str) -> PageFile:
    """Return a file in the folder `pages` of a package."""
    return file_of((files(package) / "pages" / name).read_bytes(), CONTENT_TYPES[name.rpartition(".")[2]])


def file_of(body: bytes, content_type: str) -> PageFile:
    return PageFile(body, content_type, f'"{blake2b(body, digest_size=12).hexdigest()}"')
