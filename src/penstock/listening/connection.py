"""One connection: bytes to requests, one at a time, with a deadline for whatever it waits for.

    NEW ──▶ HEAD ──▶ BODY ──▶ ANSWERING ──▶ IDLE ──▶ HEAD …
     │        │        │          │           │
     └────────┴────────┴──────────┴───────────┴──▶ CLOSING ──▶ lost

The parser and its calls are uvicorn's; who runs when, what is kept and when it ends
is decided here.

Laws of this file
-----------------
1. A connection waits for one thing at a time and has one deadline for it, a number.
   Nobody sets a timer: a sweep looks at all connections now and then.
2. One request is answered at a time. Few may wait behind it, and meanwhile the socket
   is not read: what a client can make us keep is bounded by that.
3. The next request begins when the client has read most of the answer before.
4. What we wait for only because we do not read is not the client's fault.
5. After `close` comes `abort`, if the client does not close its side.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from math import inf
from time import perf_counter
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.listening import refusals
from penstock.listening.exchange import CLIENT_GONE, DEPARTURE, Application, Exchange, Message
from penstock.listening.limits import Patience
from penstock.listening.upgrades import framing_of, parser_of_body
from penstock.runtime.interface import NoteWriter


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

    def __init__(self, application: Application, patience: Patience, note: NoteWriter, *, connections_max: int) -> None:
        # What requests are given to; another one once the store is open.
        self.application = application
        self.patience = patience
        self.note = note
        self.connections_max = connections_max
        self.state = ServerState()
        self.connections = cast(set["Connection"], self.state.connections)
        # Those that were turned away and have not closed yet.
        self.refused: set[Connection] = set()
        self.date = b""
        self.is_stopping = False
        self.count: Count = lambda _scope, _status, _seconds: None
        # Of connections, since the start.
        self.accepted = self.turned_away = self.timed_out = 0
        # Called when there are no connections any more.
        self.emptied: Callable[[], None] | None = None


# Parts of an answer that are smaller together are joined before they are written.
_JOINED_BYTES_MAX = 16_384
# Chunks of fifty bytes and more have fewer bytes around them.
_BODY_BYTES_PER_FRAMING_BYTE = 8


class _Stopped(Exception):
    """Raised through the parser: the rest of what arrived is not looked at."""


class Connection(HttpToolsProtocol):
    def __init__(self, config: Config, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config, shared.state, {}, loop)
        self._shared = shared
        self._patience = shared.patience
        self.note = shared.note
        self.phase = Phase.NEW
        # By the clock of the loop; the sweep looks at it.
        self.due_at = inf
        self._head_began_at = 0.0
        # Bytes that arrived since the head of a request began.
        self._head_bytes = 0
        # Of the body that arrives: its bytes, those around it (sizes of chunks, extensions, trailers), and those of
        # them that came since its last byte.
        self._body_bytes = self._framing_bytes = self._gap_bytes = 0
        # The request that is being read, and the one that is being answered; often the same.
        self._arriving: Exchange | None = None
        self._answering: Exchange | None = None
        # A refusal to be said when the parser has been left.
        self._refusal: bytes | None = None
        # How the body of a request is delimited that the parser does not read; see `upgrades`.
        self._framing = b""
        self._discarded_bytes = 0
        self._unread_bytes = 0

    # What the transport calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        shared = self._shared
        self.due_at = self.loop.time() + self._patience.first_byte_s
        if len(shared.connections) > shared.connections_max:
            shared.connections.discard(self)
            shared.refused.add(self)
            shared.turned_away += 1
            self.refuse(refusals.too_many_connections(shared.connections_max))
        else:
            shared.accepted += 1

    def data_received(self, data: bytes) -> None:
        if self.phase is Phase.CLOSING:
            self._discard(len(data))
            return
        is_all_of_body = self.phase is Phase.BODY
        body_bytes = self._body_bytes
        if not is_all_of_body:
            self._head_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._stop_reading_for(self._refusal or refusals.malformed())
            return
        if self.phase is Phase.HEAD:
            self._check_half_head()
        elif self.phase is Phase.BODY:
            self._check_half_body(len(data) if is_all_of_body else 0, self._body_bytes - body_bytes)

    def _check_half_head(self) -> None:
        if self._is_head_too_large():
            self._stop_reading_for(refusals.head_too_large(self._patience))
        elif not self.flow.write_paused:
            self.due_at = self._head_began_at + self._patience.head_s

    def _check_half_body(self, arrived_bytes: int, body_bytes: int) -> None:
        if arrived_bytes and self._is_framing_too_large(arrived_bytes, body_bytes):
            self._stop_reading_for(refusals.framing_too_large(self._patience.head_bytes_max))
        elif not self.flow.write_paused:
            self.due_at = self.loop.time() + self._patience.body_s

    def _is_head_too_large(self) -> bool:
        patience = self._patience
        return self._head_bytes > patience.head_bytes_max or len(self.headers) > patience.headers_max

    def _is_framing_too_large(self, arrived_bytes: int, body_bytes: int) -> bool:
        """Count what arrived around a body, and return whether it is too much.

        The parser keeps a whole trailer, and joins it again with each piece. What a long body in small chunks needs for
        their sizes is a part of that body, so more of it is allowed.
        """
        self._framing_bytes += arrived_bytes - body_bytes
        self._gap_bytes = 0 if body_bytes else self._gap_bytes + arrived_bytes
        most = self._patience.head_bytes_max
        return self._gap_bytes > most or self._framing_bytes > most + self._body_bytes // _BODY_BYTES_PER_FRAMING_BYTE

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            # Nothing else is spoken here: the request is answered as if it had not asked.
            if self._framing:
                framing, self._framing = self._framing, b""
                self.parser = parser_of_body(framing, self)
            rest = data[error.args[0] :]
            if rest:
                self._parse(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self.phase, self.due_at = Phase.CLOSING, inf
        for exchange in {self._answering, self._arriving, *cast(Any, self.pipeline)} - {None}:
            cast(Exchange, exchange).lose()
        self.pipeline.clear()
        self._answering = self._arriving = None
        self._shared.refused.discard(self)
        super().connection_lost(exc)
        if self._shared.emptied is not None and not self._shared.connections:
            self._shared.emptied()

    def pause_writing(self) -> None:
        self.flow.pause_writing()
        self._unread_bytes = self.transport.get_write_buffer_size()
        self.due_at = self.loop.time() + self._patience.answer_s

    def resume_writing(self) -> None:
        self.flow.resume_writing()
        self._unread_bytes = 0
        if self.phase is Phase.CLOSING:
            self.due_at = self.loop.time() + self._patience.farewell_s
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
        # What comes after the body is a trailer: nobody has checked it as a header, so it is none.
        if self.phase is Phase.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._check_head()
        parser, scope = self.parser, self.scope
        version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = version
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        is_kept_alive = version == "1.1" and parser.should_keep_alive()
        exchange = Exchange(self, cast(Message, scope), is_kept_alive=is_kept_alive, began_at=perf_counter())
        exchange.scope[DEPARTURE] = exchange.departure
        exchange.must_say_continue = self.expect_100_continue
        if parser.should_upgrade():
            self._framing = framing_of(self.headers)
        self._arriving = exchange
        self.phase = Phase.BODY
        if self._answering is None and not self.flow.write_paused:
            self._begin(exchange)
        else:
            self._queue(exchange)

    def _check_head(self) -> None:
        if self._is_head_too_large():
            # What arrived in one piece may hold a body, too: then it is counted exactly.
            self._head_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if self._is_head_too_large():
                self._refusal = refusals.head_too_large(self._patience)
                raise _Stopped
        self._head_bytes = self._body_bytes = self._framing_bytes = self._gap_bytes = 0

    def _queue(self, exchange: Exchange) -> None:
        queue = cast(Any, self.pipeline)
        if len(queue) >= self._patience.pipelined_max:
            # Those before it are answered, the last of them with a word that it is the last.
            queue[-1].is_kept_alive = False
            raise _Stopped
        queue.append(exchange)
        self.flow.pause_reading()

    def on_body(self, body: bytes) -> None:
        exchange = self._arriving
        assert exchange is not None
        self._body_bytes += len(body)
        if exchange.is_complete or exchange.is_gone:
            return
        if exchange.take_in(body) > self._patience.ahead_bytes_max:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        exchange = self._arriving
        assert exchange is not None
        if self._framing:
            return
        exchange.end_body()
        self.phase = Phase.ANSWERING
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
        """Somebody wants more of a request; one that waits behind it is not read on."""
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
        status = exchange.status if exchange.is_complete or exchange.status == 500 else CLIENT_GONE
        # Not the clock of the loop, which is exact to a millisecond.
        self._shared.count(exchange.scope, status, perf_counter() - exchange.began_at)

    def refuse(self, answer: bytes) -> None:
        """Say something by ourselves, as the last thing on this connection."""
        self.write(answer)
        self._end(is_all_read=False)

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
            self._check_is_sending(now)
        else:
            self._shared.timed_out += self.phase is Phase.NEW
            self.close()

    def _check_is_reading(self, now: float) -> None:
        left = self.transport.get_write_buffer_size()
        if not left:
            self._unread_bytes = 0
            self.due_at = now + self._patience.farewell_s
            return
        if self._unread_bytes - left < self._patience.answer_bytes_min:
            self._shared.timed_out += 1
            self.abort()
            return
        self._unread_bytes = left
        self.due_at = now + self._patience.answer_s

    def _check_is_sending(self, now: float) -> None:
        is_head = self.phase is Phase.HEAD
        is_behind_another = self._answering is not None and (is_head or self._answering is not self._arriving)
        if self.flow.read_paused or is_behind_another:
            self.due_at = now + self._patience.body_s
            return
        self._shared.timed_out += 1
        limit_s = self._patience.head_s if is_head else self._patience.body_s
        self._stop_reading_for(refusals.too_late("the head" if is_head else "the next part of the body", limit_s))

    # What happens here.

    def _begin(self, exchange: Exchange) -> None:
        self._answering = exchange
        task = self.loop.create_task(exchange.run(self._shared.application))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _next(self) -> None:
        """Answer the request that waits, or wait for one."""
        if self.pipeline:
            self._begin(cast(Any, self.pipeline).popleft())
        elif self.phase is Phase.ANSWERING:
            self.phase = Phase.IDLE
        self._arm()
        if not self.pipeline:
            self.flow.resume_reading()

    def _arm(self) -> None:
        """Begin the time for what the connection waits for now; what came behind another has waited for us so far."""
        patience, phase = self._patience, self.phase
        self._head_began_at = now = self.loop.time()
        # On the way of every request: a dictionary of phases would cost ten times as much.
        if phase is Phase.IDLE:
            self.due_at = now + patience.idle_s
        elif phase is Phase.HEAD:
            self.due_at = now + patience.head_s
        elif phase is Phase.BODY:
            self.due_at = now + patience.body_s
        else:
            self.due_at = inf

    def _stop_reading_for(self, answer: bytes) -> None:
        """What arrives is of no use any more. Requests before it are answered; then the answer is said, and the end."""
        broken = self._arriving
        if broken is not None and not broken.has_more_body:
            broken = None
        waiting = cast(Any, self.pipeline)
        if waiting and waiting[-1] is broken:
            waiting.pop()
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
        waits_s = self._patience.answer_s if self._unread_bytes else self._patience.farewell_s
        self.due_at = self.loop.time() + waits_s

    def _discard(self, size_bytes: int) -> None:
        self._discarded_bytes += size_bytes
        if self._discarded_bytes > self._patience.discarded_bytes_max:
            self.abort()
