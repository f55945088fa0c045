"""One request and its answer: what an ASGI application receives and sends.

    on_body ──▶ taken in ──▶ receive          send ──▶ head and body in one write ──▶ done

Laws of this file
-----------------
1. The head of an answer is written together with the first part of its body, so a
   small answer is one packet.
2. Nothing is written while the client has not read what was written before.
3. An answer that comes before the end of its request is the last of its connection.
4. Whatever the application does, the client gets one whole answer or a closed connection.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol

from uvicorn.protocols.http.flow_control import FlowControl

from penstock.listening.http_limits import server_failed
from penstock.runtime.interface import LogEventWriter
from penstock.telemetry import REST_FAILED

Message = MutableMapping[str, Any]
Application = Callable[..., Awaitable[None]]

# What other servers write in their logs for a client that did not wait for its answer.
CLIENT_GONE = 499
# Where an application finds, in the scope, what tells it that its client is gone.
DEPARTURE = "penstock.departure"

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
            self.connection.log_event(REST_FAILED, path=self.scope.get("path"), error=trace)
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
        self.connection.refuse(server_failed())

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
        head = [_STATUS[status], self.connection.date]
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
        """Satisfies `listening.buffers.Arriving`."""
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
