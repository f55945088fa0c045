"""One connection: bytes to requests, one at a time, with a deadline for each wait.

    NEW ──▶ HEAD ──▶ BODY ──▶ ANSWERING ──▶ IDLE ──▶ HEAD …
     │        │        │          │           │
     └────────┴────────┴──────────┴───────────┴──▶ CLOSING ──▶ lost

The parser and its calls are uvicorn's; who runs when, what is kept and when it ends
is decided here.

Laws of this file
-----------------
1. A connection waits for one thing at a time and has one deadline for it, a number.
   There is no timer: a sweep checks all connections now and then.
2. One request is answered at a time. Few may wait behind it, and meanwhile the socket
   is not read: what a client can make us keep is bounded by that.
3. The next request begins when the client has read most of the answer before.
4. What we wait for only because we do not read is not the client's fault.
   What it sends too slowly is: a part of a body gives the rest no more time.
5. After `close` comes `abort`, if the client does not close its side.
"""

import asyncio
import re
import sys
import time
from collections.abc import Callable
from email.utils import formatdate
from enum import Enum, auto
from math import inf
from time import perf_counter
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.listening.http_exchange import (
    CLIENT_GONE,
    DEPARTURE,
    Application,
    ConnectionLimits,
    Exchange,
    Message,
    body_too_late,
    framing_too_large,
    head_too_large,
    head_too_late,
    malformed,
    no_room,
    too_many_connections,
)
from penstock.listening.listener import BufferBudget, drain_tasks, expire_due, happened, is_file_beyond
from penstock.runtime.coroutines import drive
from penstock.runtime.interface import LogEventWriter


class Phase(Enum):
    NEW = auto()
    HEAD = auto()
    BODY = auto()
    ANSWERING = auto()
    IDLE = auto()
    CLOSING = auto()


class Count(Protocol):
    def __call__(self, scope: Message, status: int, seconds: float, /) -> None:
        """One request was answered, or its client is gone (`CLIENT_GONE`)."""
        ...


class Shared:
    """What all connections of a listener have in common."""

    def __init__(
        self,
        application: Application,
        limits: ConnectionLimits,
        log_event: LogEventWriter,
        *,
        connections_max: int,
        budget: BufferBudget,
        file_number_max: int = sys.maxsize,
    ) -> None:
        # What requests are given to; another one once the store is open.
        self.application = application
        self.limits = limits
        self.log_event = log_event
        self.connections_max = connections_max
        self.budget = budget
        # A connection with such a file is one too many, although there are fewer than may be.
        self.file_number_max = file_number_max
        self.state = ServerState()
        self.connections = cast(set["Connection"], self.state.connections)
        # Those that were turned away and have not closed yet.
        self.refused: set[Connection] = set()
        self.date = b""
        self.is_stopping = False
        self.count: Count = lambda _scope, _status, _seconds: None
        # Whether the application answers such a request without a task (`runtime/coroutines.py`).
        self.needs_no_task: Callable[[Message], bool] = lambda _scope: False
        # Of connections, since the start.
        self.accepted = self.turned_away = self.timed_out = 0
        # Called when the last connection is gone.
        self.emptied: Callable[[], None] | None = None
        # The application is not here: each request looks for it, as it changes when the store is open.
        self._config = Config(
            app=_no_application, http=Connection, ws="none", lifespan="off", log_config=None, access_log=False
        )
        self._config.load()

    @property
    def sweep_s(self) -> float:
        return self.limits.sweep_s

    @property
    def handshake_s(self) -> float:
        return self.limits.handshake_s

    @property
    def open_connections(self) -> "list[Connection]":
        return [*self.connections, *self.refused]

    def is_empty(self) -> bool:
        return not self.connections

    def connect(self) -> "Connection":
        return Connection(self._config, self, asyncio.get_running_loop())

    def sweep(self, now: float) -> None:
        self.date = b"date: %b\r\n" % formatdate(time.time(), usegmt=True).encode()
        expire_due(self.open_connections, now)

    async def finish(self, ends_at: float, hurry: asyncio.Event) -> int:
        """Answer the requests that still come, each as the last one of its connection."""
        left_s = ends_at - asyncio.get_running_loop().time()
        await happened(hurry, min(self.limits.grace_s, left_s) if self.connections else 0)
        cut_off = await drain_tasks(self.state.tasks, ends_at, hurry)
        for connection in [each for each in self.connections if each.is_idle()]:
            connection.close()
        return cut_off


async def _no_application(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - so it is known for an application.
    raise AssertionError("requests go to the shared application")


# Parts of an answer that are smaller together are joined before they are written.
_JOINED_BYTES_MAX = 16_384
# What a request that waits costs beside its bytes.
_QUEUED_BYTES = 2_048
# Chunks of fifty bytes and more have fewer bytes around them.
_BODY_BYTES_PER_FRAMING_BYTE = 8


class _Stopped(Exception):
    """Raised through the parser: the rest of what arrived is not looked at."""


class Connection(HttpToolsProtocol):
    def __init__(self, config: Config, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config, shared.state, {}, loop)
        self._shared = shared
        self._limits = shared.limits
        self._budget = shared.budget
        self.log_event = shared.log_event
        self.phase = Phase.NEW
        # By the clock of the loop; the sweep looks at it.
        self.due_at = inf
        self._head_began_at = 0.0
        # Bytes that arrived since the head of a request began.
        self._head_bytes = 0
        # Of the body that arrives: its bytes, those around it (sizes of chunks, extensions, trailers), and those of
        # them that came since its last byte.
        self._body_bytes = self._framing_bytes = self._gap_bytes = 0
        # How much of the body was there when its deadline was set.
        self._timed_bytes = 0
        # What a head that is not whole holds of the budget, and since when; see `listening.listener.Arriving`.
        self.held_bytes = 0
        self.held_since_s = 0.0
        # The request that is being read, and the one that is being answered; often the same.
        self._arriving: Exchange | None = None
        self._answering: Exchange | None = None
        # One that is to begin when all that has arrived was parsed.
        self._beginning: Exchange | None = None
        # A refusal to be said when the parser has been left.
        self._refusal: bytes | None = None
        # How the body of a request is delimited that the parser does not read; see `_framing_of`.
        self._framing = b""
        self._discarded_bytes = 0
        self._unread_bytes = 0

    # What the transport calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        shared = self._shared
        self.due_at = self.loop.time() + self._limits.first_byte_s
        if len(shared.connections) > shared.connections_max or is_file_beyond(transport, shared.file_number_max):
            shared.connections.discard(self)
            shared.turned_away += 1
            if len(shared.refused) >= self._limits.refused_max:
                # Connections that get a reason take files while they are heard out.
                self.abort()
                return
            shared.refused.add(self)
            self.refuse(too_many_connections(min(len(shared.connections), shared.connections_max)))
        else:
            shared.accepted += 1

    def data_received(self, data: bytes) -> None:
        if self.phase is Phase.CLOSING:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > self._limits.discarded_bytes_max:
                self.abort()
            return
        self._take_in(data)
        exchange = self._beginning
        if exchange is not None:
            self._beginning = None
            if not exchange.has_more_body and self._shared.needs_no_task(exchange.scope):
                drive(exchange.run(self._shared.application), self.tasks)
            else:
                self._begin(exchange)

    def _take_in(self, data: bytes) -> None:
        begun = self._arriving if self.phase is Phase.BODY else None
        body_bytes = self._body_bytes
        if begun is None:
            self._head_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._stop_reading_for(self._refusal or malformed())
            return
        if self.phase is Phase.HEAD:
            self._check_half_head()
        elif self.phase is Phase.BODY:
            self._check_half_body(begun, len(data), self._body_bytes - body_bytes)

    def _check_half_head(self) -> None:
        limits = self._limits
        if self._is_head_too_large():
            self._stop_reading_for(head_too_large(limits))
            return
        is_counted = self._head_bytes > limits.uncounted_bytes_max
        if is_counted and not self._budget.hold(self, self._head_bytes - self.held_bytes):
            self.shed()
        elif not self.flow.write_paused:
            self.due_at = self._head_began_at + limits.head_s

    def _check_half_body(self, begun: Exchange | None, arrived_bytes: int, body_bytes: int) -> None:
        if self._arriving is not begun:
            # Its head came just now. What comes after it does not move the deadline: a trickle has no end.
            if not self.flow.write_paused:
                self._give_body_time()
        elif self._is_framing_too_large(arrived_bytes, body_bytes):
            self._stop_reading_for(framing_too_large(self._limits.head_bytes_max))

    def _is_head_too_large(self) -> bool:
        limits = self._limits
        return self._head_bytes > limits.head_bytes_max or len(self.headers) > limits.headers_max

    def _is_framing_too_large(self, arrived_bytes: int, body_bytes: int) -> bool:
        """Count what arrived around a body, and return whether it is too much.

        The parser keeps a whole trailer, and joins it again with each piece. What a long body in small chunks needs for
        their sizes is a part of that body, so more of it is allowed.
        """
        self._framing_bytes += arrived_bytes - body_bytes
        self._gap_bytes = 0 if body_bytes else self._gap_bytes + arrived_bytes
        most = self._limits.head_bytes_max
        return self._gap_bytes > most or self._framing_bytes > most + self._body_bytes // _BODY_BYTES_PER_FRAMING_BYTE

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            # Nothing else is spoken here: the request is answered as if it had not asked.
            if self._framing:
                framing, self._framing = self._framing, b""
                self.parser = _parser_of_body(framing, self)
            rest = data[error.args[0] :]
            if rest:
                self._parse(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self.phase, self.due_at = Phase.CLOSING, inf
        for exchange in {self._answering, self._arriving, *cast(Any, self.pipeline)} - {None}:
            cast(Exchange, exchange).lose()
        self._budget.free(self)
        self._forget_from(None)
        self._answering = self._arriving = None
        self._shared.refused.discard(self)
        super().connection_lost(exc)
        if self._shared.emptied is not None and not self._shared.connections:
            self._shared.emptied()

    def pause_writing(self) -> None:
        self.flow.pause_writing()
        self._unread_bytes = self.transport.get_write_buffer_size()
        self.due_at = self.loop.time() + self._limits.answer_s

    def resume_writing(self) -> None:
        self.flow.resume_writing()
        self._unread_bytes = 0
        if self.phase is Phase.CLOSING:
            self.due_at = self.loop.time() + self._limits.farewell_s
        elif self._answering is None:
            self._next()
        else:
            self._arm()

    # What the parser calls.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.phase = Phase.HEAD
        self._head_began_at = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes after the body is a trailer: it was not checked as a header, so it is none.
        if self.phase is Phase.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        head_bytes = self._checked_head_bytes()
        parser, scope = self.parser, self.scope
        version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = version
        url = httptools.parse_url(self.url)
        if version == "0.9" or not (self.url.startswith((b"/", b"*")) or self._is_host_named()):
            # Without a version there are no headers that say what is asked. Proxies are asked for other hosts, and we
            # are none.
            raise _Stopped
        path = url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        is_kept_alive = version == "1.1" and parser.should_keep_alive()
        exchange = Exchange(self, cast(Message, scope), is_kept_alive=is_kept_alive, began_at=perf_counter())
        exchange.scope[DEPARTURE] = exchange.departure
        exchange.must_say_continue = self.expect_100_continue
        if self.held_bytes:
            self._budget.free(self)
        if parser.should_upgrade():
            self._framing = _framing_of(self.headers)
        self._arriving = exchange
        self.phase = Phase.BODY
        if head_bytes > self._limits.uncounted_bytes_max:
            self._hold(exchange, head_bytes)
        if self._answering is None and not self.flow.write_paused:
            self._answering = self._beginning = exchange
        else:
            self._queue(exchange)

    def _is_host_named(self) -> bool:
        """Whether the host in the target, as in `GET http://host/`, is the one that the header says."""
        authority = re.split(rb"[/?#]", self.url.partition(b"://")[2], maxsplit=1)[0].lower()
        return [value.lower() for name, value in self.headers if name == b"host"] == [authority]

    def _checked_head_bytes(self) -> int:
        """Return how large the head is, about, and begin to count its body."""
        size = self._head_bytes
        if size > self._limits.uncounted_bytes_max:
            # What arrived in one piece may hold a body, too: then it is counted exactly.
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        self._head_bytes = size
        if self._is_head_too_large():
            self._refusal = head_too_large(self._limits)
            raise _Stopped
        self._head_bytes = self._body_bytes = self._framing_bytes = self._gap_bytes = 0
        return size

    def _hold(self, exchange: Exchange, size_bytes: int) -> None:
        """Count what was kept of a request; called by the parser, which is left if there is no room."""
        if not self._budget.hold(exchange, size_bytes):
            self._refusal = no_room(self._budget.bytes_max)
            raise _Stopped

    def _queue(self, exchange: Exchange) -> None:
        queue = cast(Any, self.pipeline)
        if len(queue) >= self._limits.pipelined_max:
            # Those before it are answered, the last of them with a word that it is the last.
            queue[-1].is_kept_alive = False
            raise _Stopped
        queue.append(exchange)
        self.flow.pause_reading()
        # However small: many of them may wait here.
        self._hold(exchange, _QUEUED_BYTES)

    def on_body(self, body: bytes) -> None:
        exchange = self._arriving
        assert exchange is not None
        self._body_bytes += len(body)
        if exchange.is_complete or exchange.is_gone:
            return
        if exchange.held_bytes:
            self._hold(exchange, len(body))
        elif self._body_bytes > self._limits.uncounted_bytes_max:
            self._hold(exchange, self._body_bytes)
        if exchange.take_in(body) > self._limits.ahead_bytes_max:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        exchange = self._arriving
        assert exchange is not None
        if self._framing:
            return
        exchange.end_body()
        self.phase = Phase.ANSWERING
        if exchange.held_bytes and exchange is self._answering:
            self._budget.keep(exchange)
        if not self.flow.write_paused:
            self.due_at = inf

    # What an exchange calls.

    @property
    def date(self) -> bytes:
        return self._shared.date

    def is_last_answer(self) -> bool:
        return self._shared.is_stopping

    def write(self, *parts: bytes) -> None:
        if not self.transport.is_closing():
            if sum(map(len, parts)) < _JOINED_BYTES_MAX:
                self.transport.write(b"".join(parts))
            else:
                # A copy of a large answer would cost more than a second buffer.
                self.transport.writelines(parts)

    def read_on(self, exchange: Exchange) -> None:
        """The application wants more of a request; a request that waits behind it is not read on."""
        if not self.pipeline and exchange is self._arriving:
            self.flow.resume_reading()

    def answered(self, exchange: Exchange) -> None:
        self._shared.state.total_requests += 1
        self._answering = None
        if self.transport.is_closing() or self.phase is Phase.CLOSING:
            return
        if not exchange.is_kept_alive:
            self._end(is_all_read=not exchange.has_more_body)
        elif not self.flow.write_paused:
            self._next()

    def count(self, exchange: Exchange) -> None:
        if exchange.held_bytes:
            self._budget.free(exchange)
        status = exchange.status if exchange.is_complete or exchange.status == 500 else CLIENT_GONE
        # Not the clock of the loop, which is exact to a millisecond.
        self._shared.count(exchange.scope, status, perf_counter() - exchange.began_at)

    def refuse(self, answer: bytes) -> None:
        """Say something by ourselves, as the last thing on this connection."""
        self.write(answer)
        self._end(is_all_read=False)

    def give_up(self, exchange: Exchange) -> None:
        self._forget_from(exchange)
        self.shed()

    def shed(self) -> None:
        """Refuse what is arriving for want of room; for a head that is not whole see `listening.listener.Arriving`."""
        if self.phase is not Phase.CLOSING:
            self._stop_reading_for(no_room(self._budget.bytes_max))

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    # What the listener calls.

    def is_idle(self) -> bool:
        return self._answering is None and self.phase in {Phase.NEW, Phase.IDLE}

    def close(self) -> None:
        """Close when what was written has been taken, or after a while in any case."""
        self._begin_closing()
        self.transport.close()

    def expire(self, now: float) -> None:
        """The deadline has passed: end what the client left hanging."""
        if self.flow.write_paused or self._unread_bytes:
            self._check_is_reading(now)
        elif self.phase is Phase.CLOSING:
            self.abort()
        elif self.phase in {Phase.HEAD, Phase.BODY}:
            self._check_is_sending()
        else:
            self._shared.timed_out += self.phase is Phase.NEW
            self.close()

    def _check_is_reading(self, now: float) -> None:
        left = self.transport.get_write_buffer_size()
        if not left:
            self._unread_bytes = 0
            self.due_at = now + self._limits.farewell_s
            return
        if self._unread_bytes - left < self._limits.answer_bytes_min:
            self._shared.timed_out += 1
            self.abort()
            return
        self._unread_bytes = left
        self.due_at = now + self._limits.answer_s

    def _check_is_sending(self) -> None:
        is_head = self.phase is Phase.HEAD
        is_behind_another = self._answering is not None and (is_head or self._answering is not self._arriving)
        has_sent = not is_head and self._body_bytes - self._timed_bytes >= self._limits.body_bytes_min
        if self.flow.read_paused or is_behind_another or has_sent:
            self._give_body_time()
            return
        self._shared.timed_out += 1
        too_late = head_too_late if is_head else body_too_late
        self._stop_reading_for(too_late(self._limits))

    # What happens here.

    def _begin(self, exchange: Exchange) -> None:
        task = self.loop.create_task(exchange.run(self._shared.application))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _next(self) -> None:
        """Answer the request that waits, or wait for one."""
        if self.pipeline:
            exchange = self._answering = cast(Any, self.pipeline).popleft()
            if exchange.held_bytes and not exchange.has_more_body:
                self._budget.keep(exchange)
            self._begin(exchange)
        elif self.phase is Phase.ANSWERING:
            self.phase = Phase.IDLE
        self._arm()
        if not self.pipeline:
            self.flow.resume_reading()

    def _arm(self) -> None:
        """Begin the time for what the connection waits for now; what came behind another has waited for us so far."""
        limits, phase = self._limits, self.phase
        self._head_began_at = now = self.loop.time()
        # On the way of every request: a dictionary of phases would cost ten times as much.
        if phase is Phase.IDLE:
            self.due_at = now + limits.idle_s
        elif phase is Phase.HEAD:
            self.due_at = now + limits.head_s
        elif phase is Phase.BODY:
            self._give_body_time()
        else:
            self.due_at = inf

    def _give_body_time(self) -> None:
        self.due_at = self.loop.time() + self._limits.body_s
        self._timed_bytes = self._body_bytes

    def _forget_from(self, exchange: Exchange | None) -> None:
        """Take a request that waits, and those behind it, out of the queue; all of them without one."""
        waiting = cast(Any, self.pipeline)
        while waiting and (exchange is None or exchange in waiting):
            self._budget.free(waiting.pop())

    def _stop_reading_for(self, answer: bytes) -> None:
        """What arrives is of no use any more. Requests before it are answered; then the answer is said, and the end."""
        self._budget.free(self)
        broken = self._arriving
        if broken is not None and not broken.has_more_body:
            broken = None
        waiting = cast(Any, self.pipeline)
        if waiting and waiting[-1] is broken:
            self._budget.free(waiting.pop())
        last = waiting[-1] if waiting else self._answering
        if last is not None and last is not broken:
            last.is_kept_alive = False
            self.phase, self.due_at = Phase.ANSWERING, inf
            self.flow.pause_reading()
            return
        is_half_answered = broken is not None and broken.status != 0
        if broken is not None:
            broken.lose()
        if is_half_answered:
            self.abort()
        else:
            self.refuse(answer)

    def _end(self, *, is_all_read: bool) -> None:
        """Close; while the client still sends, hear it out, as a reset would take the answer from it."""
        if is_all_read or not self.transport.can_write_eof() or self.transport.is_closing():
            self.close()
            return
        self._begin_closing()
        self.transport.write_eof()
        self.flow.resume_reading()

    def _begin_closing(self) -> None:
        self.phase = Phase.CLOSING
        self._unread_bytes = self.transport.get_write_buffer_size()
        waits_s = self._limits.answer_s if self._unread_bytes else self._limits.farewell_s
        self.due_at = self.loop.time() + waits_s


# Requests that offer another protocol (`Upgrade: h2c`, as some clients do at first) are answered in HTTP/1.1. The
# parser takes what follows the head of such a request for the other protocol: it says that the request is complete, and
# stops before its body. A server that went on from there would take the body for the next request. So a second parser,
# which gets the length again, reads the body and all requests that follow.
_LENGTHS = (b"content-length", b"transfer-encoding")


def _framing_of(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return a head that says of a body what these headers say; empty if there is no body."""
    lengths = [b"%b: %b\r\n" % (name, value) for name, value in headers if name in _LENGTHS]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lengths) if lengths else b""


def _parser_of_body(framing: bytes, protocol: Any) -> Any:
    """Return a parser that goes on where a head has ended, and calls ``protocol`` as its own would."""
    parser = httptools.HttpRequestParser(_RestOfRequest(protocol))
    parser.feed_data(framing)
    return parser


class _RestOfRequest:
    """Keeps the head that was made up to itself."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._is_past = False
        self.on_body = protocol.on_body

    def on_message_begin(self) -> None:
        if self._is_past:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._is_past:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_past:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_past:
            self._protocol.on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_past = True
        self._protocol.on_message_complete()
