"""One request and its answer: what an ASGI application receives and sends, within which limits.

    on_body ──▶ taken in ──▶ receive          send ──▶ head and body in one write ──▶ done

Laws of this file
-----------------
1. The head of an answer is written together with the first part of its body, so a
   small answer is one packet.
2. Nothing is written while the client has not read what was written before.
3. An answer that comes before the end of its request is the last of its connection.
4. Each request has an id, which no other has: its answer says it (`x-request-id`), and so does the log of what fails.
5. Whatever the application does, the client gets one whole answer or a closed connection.
6. A client that exceeds a limit gets a problem (RFC 9457), which ends its connection.
"""

import asyncio
import traceback
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from typing import Any, Protocol

import msgspec
from uvicorn.protocols.http.flow_control import FlowControl

from penstock.contract.limits import KIB, MIB
from penstock.runtime.interface import LogEventWriter
from penstock.telemetry import REQUEST_ID, REST_FAILED
from penstock.wire.problems import CODES, PROBLEM_TYPE, Problem

_encode = msgspec.json.Encoder().encode
# When there may be room again: requests are answered, or given up, within seconds.
_RETRY_AFTER_S = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Deadlines in seconds, and sizes in bytes, of one connection."""

    # From the first byte of a request until its headers are complete.
    head_s: float = 10.0
    # A client that sends less than `body_bytes_min` of a body in this time is refused; a smaller body has this time.
    body_s: float = 30.0
    body_bytes_min: int = 64 * KIB
    # From connecting to the first byte.
    first_byte_s: float = 30.0
    # Between two requests.
    idle_s: float = 75.0
    # A client that takes less than `answer_bytes_min` of its answer in this time is dropped.
    answer_s: float = 30.0
    answer_bytes_min: int = 64 * KIB
    # For the client to hear the last answer of a connection, and to close it too.
    farewell_s: float = 5.0
    # The request line and all headers together; as much again of trailers, or of anything else around a body.
    head_bytes_max: int = 64 * KIB
    # Each header is two objects of Python, however short it is.
    headers_max: int = 256
    # A request up to this size is not counted in the budget that all connections share: small ones always get through.
    uncounted_bytes_max: int = 8 * KIB
    # What has arrived of a body before the application reads it; then nothing more is read from the socket.
    ahead_bytes_max: int = 256 * KIB
    # What is read and thrown away after an answer that came before the end of the request.
    discarded_bytes_max: int = 64 * MIB
    # Requests that wait behind the one that is being answered.
    pipelined_max: int = 64
    # Connections beyond the limit that get a reason at the same time; more are closed without one.
    refused_max: int = 32
    # For a TLS handshake.
    handshake_s: float = 10.0
    # How long idle connections stay open when the server stops: a client that sends just then gets an answer.
    grace_s: float = 0.2
    # How often deadlines are checked.
    sweep_s: float = 1.0


USUAL = ConnectionLimits()


def refusal(
    code: str, detail: str, *, limit: int | None = None, retry_after_s: int | None = None, request_id: str = ""
) -> bytes:
    """Return a whole answer that ends its connection."""
    _, status, title, *_ = CODES[code]
    body = _encode(
        Problem(
            title=title,
            status=status,
            code=code,
            detail=detail,
            limit=msgspec.UNSET if limit is None else limit,
            retry_after_s=msgspec.UNSET if retry_after_s is None else retry_after_s,
        )
    )
    more = "" if retry_after_s is None else f"retry-after: {retry_after_s}\r\n"
    more += f"x-request-id: {request_id}\r\n" if request_id else ""
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {PROBLEM_TYPE}\r\n"
        f"content-length: {len(body)}\r\n{more}connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def malformed() -> bytes:
    return refusal("bad_request", "this is not HTTP/1.1 as RFC 9112 has it")


def head_too_late(limits: ConnectionLimits) -> bytes:
    return refusal("request_timeout", f"the head did not arrive within {limits.head_s:g} s")


def body_too_late(limits: ConnectionLimits) -> bytes:
    least, limit_s = limits.body_bytes_min, limits.body_s
    return refusal("request_timeout", f"neither the body nor {least} more bytes of it arrived within {limit_s:g} s")


def no_room(limit_bytes: int) -> bytes:
    detail = f"requests that are not answered yet hold {limit_bytes} bytes"
    return refusal("no_room", detail, limit=limit_bytes, retry_after_s=_RETRY_AFTER_S)


def head_too_large(limits: ConnectionLimits) -> bytes:
    most = limits.head_bytes_max
    detail = f"the request line and the headers have more than {most} bytes, or there are over {limits.headers_max}"
    return refusal("headers_too_large", detail, limit=most)


def framing_too_large(limit_bytes: int) -> bytes:
    detail = f"the trailers, or the chunk sizes and extensions, of the body have more than {limit_bytes} bytes"
    return refusal("headers_too_large", detail, limit=limit_bytes)


def too_many_connections(most: int) -> bytes:
    detail = f"{most} connections are open already"
    return refusal("too_many_connections", detail, limit=most, retry_after_s=_RETRY_AFTER_S)


def server_failed(request_id: str) -> bytes:
    detail = f"the server made a mistake; its log says which for the request {request_id}"
    return refusal("internal", detail, request_id=request_id)


Message = MutableMapping[str, Any]
Application = Callable[..., Awaitable[None]]

# What other servers write in their logs for a client that did not wait for its answer.
CLIENT_GONE = 499
# Where an application finds, in the scope, what tells it that its client is gone.
DEPARTURE = "penstock.departure"
# Of no two servers, and of no two starts of one, the same.
_PROCESS = uuid.uuid4().hex[:8]
_NUMBERS = count(1)

_STATUS = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}
_GONE: Message = {"type": "http.disconnect"}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Line(Protocol):
    """What an exchange asks of its connection."""

    flow: FlowControl
    log_event: LogEventWriter

    @property
    def date(self) -> bytes:
        """The header of that name, as a line."""
        ...

    def write(self, *parts: bytes) -> None:
        """Write something, or several things as one."""
        ...

    def read_on(self, exchange: "Exchange") -> None:
        """The application waits for the rest of a request."""
        ...

    def is_last_answer(self) -> bool:
        """Whether the connection ends after the next answer, because the server does."""
        ...

    def answered(self, exchange: "Exchange") -> None: ...

    def count(self, exchange: "Exchange") -> None:
        """No task works on the exchange any more."""
        ...

    def refuse(self, answer: bytes) -> None:
        """Say something that does not come from the application, as the last thing on this connection."""
        ...

    def give_up(self, exchange: "Exchange") -> None:
        """There is no room for a request that is still arriving, or waits for its turn."""
        ...

    def abort(self) -> None: ...


class BadAnswer(RuntimeError):
    """The application sent what is no answer; a mistake of ours."""


class Exchange:
    __slots__ = (
        "_departure",
        "_head",
        "_is_chunked",
        "_news",
        "_parts",
        "_size",
        "_waiter",
        "began_at",
        "connection",
        "has_more_body",
        "held_bytes",
        "held_since_s",
        "is_complete",
        "is_gone",
        "is_kept_alive",
        "must_say_continue",
        "scope",
        "status",
    )

    def __init__(self, connection: Line, scope: Message, *, is_kept_alive: bool, began_at: float) -> None:
        self.connection = connection
        self.scope = scope
        scope[REQUEST_ID] = f"{_PROCESS}-{next(_NUMBERS):x}"
        self.began_at = began_at
        # Whether the connection goes on after this.
        self.is_kept_alive = is_kept_alive
        self.must_say_continue = False
        self.has_more_body = True
        # The client is gone, or will not be heard any more.
        self.is_gone = False
        self.is_complete = False
        self.status = 0
        # What the request holds of the budget for all connections, and since when.
        self.held_bytes = 0
        self.held_since_s = 0.0
        # What has arrived and was not received, in parts, and how much it is.
        self._parts: list[bytes] = []
        self._size = 0
        # Whether there is something that the application has not received yet.
        self._news = False
        self._waiter: asyncio.Future[None] | None = None
        self._departure: asyncio.Future[None] | None = None
        self._head: bytes | None = None
        self._is_chunked = False

    async def run(self, application: Application) -> None:
        try:
            await application(self.scope, self.receive, self.send)
            self._check_complete()
        except asyncio.CancelledError:
            # The server stops and does not wait any longer.
            self.connection.abort()
            raise
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            request_id = self.scope[REQUEST_ID]
            self.connection.log_event(REST_FAILED, path=self.scope.get("path"), request_id=request_id, error=trace)
            self._fail()
        finally:
            self.connection.count(self)
            # Otherwise the two hold each other, and only the garbage collector would free them.
            self.scope.pop(DEPARTURE, None)

    def _check_complete(self) -> None:
        if not self.is_complete and not self.is_gone:
            raise BadAnswer("the application returned without a whole answer")

    def _fail(self) -> None:
        if self.is_complete or self.is_gone:
            return
        if self.status and self._head is None:
            # Half of an answer is on its way, and must not look whole.
            self.connection.abort()
            return
        self.status = 500
        self.connection.refuse(server_failed(self.scope[REQUEST_ID]))

    # What the application calls.

    async def receive(self) -> Message:
        if self.must_say_continue:
            self.must_say_continue = False
            self.connection.write(_CONTINUE)
        while not (self._news or self.is_gone or self.is_complete):
            self.connection.read_on(self)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.is_gone or self.is_complete:
            return _GONE
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size, self._news = [], 0, False
        return {"type": "http.request", "body": body, "more_body": self.has_more_body}

    def departure(self) -> "asyncio.Future[None]":
        """Return a future that is done when the client is gone; for those who wait without receiving.

        It is `penstock.departure` in the scope. A task that receives until the client is gone would tell the same, and
        cost as much as the rest of a long poll.
        """
        if self._departure is None:
            self._departure = asyncio.get_running_loop().create_future()
            self.connection.read_on(self)
            if self.is_gone:
                self._departure.set_result(None)
        return self._departure

    async def send(self, message: Message) -> None:
        connection = self.connection
        if connection.flow.write_paused and not self.is_gone:
            await connection.flow.drain()
        if self.is_gone:
            return
        if message["type"] == "http.response.start" and not self.status:
            self._start(message)
        elif message["type"] == "http.response.body" and self.status and not self.is_complete:
            self._write(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise BadAnswer(f"{message['type']} does not belong here")

    def _start(self, message: Message) -> None:
        self.status = status = message["status"]
        self.must_say_continue = False
        if self.has_more_body or self.connection.is_last_answer():
            self.is_kept_alive = False
        request_id = self.scope[REQUEST_ID].encode("ascii")
        head = [_STATUS[status], self.connection.date, b"x-request-id: ", request_id, b"\r\n"]
        has_length = False
        for name, value in message.get("headers", ()):
            if b"\n" in value or b"\r" in value:
                raise BadAnswer(f"a line break in the header {name!r}")
            head += (name, b": ", value, b"\r\n")
            has_length |= name == b"content-length"
        if not self.is_kept_alive:
            head.append(b"connection: close\r\n")
        if not has_length and status not in {204, 304} and self.scope["method"] != "HEAD":
            self._is_chunked = True
            head.append(b"transfer-encoding: chunked\r\n")
        head.append(b"\r\n")
        self._head = b"".join(head)

    def _write(self, body: bytes, *, is_last: bool) -> None:
        if self.scope["method"] == "HEAD":
            body = b""
        elif self._is_chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"0\r\n\r\n" if is_last else b""
        head, self._head = self._head, None
        if head is not None:
            self.connection.write(head, body)
        elif body:
            self.connection.write(body)
        if is_last:
            self.is_complete = True
            self._wake()
            self.connection.answered(self)

    # What the connection calls.

    def take_in(self, body: bytes) -> int:
        """Keep a part of the body for the application, and return how much is kept by now."""
        self._parts.append(body)
        self._size += len(body)
        self._tell()
        return self._size

    def end_body(self) -> None:
        self.has_more_body = False
        self._tell()

    def shed(self) -> None:
        """Satisfies `listening.listener.Arriving`."""
        self.connection.give_up(self)

    def lose(self) -> None:
        """The client is gone: the application may stop its work."""
        self.is_gone = True
        self._wake()
        if self._departure is not None and not self._departure.done():
            self._departure.set_result(None)

    def _tell(self) -> None:
        self._news = True
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
