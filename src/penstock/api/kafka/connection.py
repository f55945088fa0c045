"""One connection of a Kafka client: frames to requests, answers in the order of the requests.

    arrived ──▶ waiting ──begin──▶ running ──▶ answered ──▶ written, in order
                   │                  │
        one at a time, but Produce requests that follow each other run together

Laws of this file
-----------------
1. Answers leave in the order of their requests. A request begins when those before it
   are answered; only Produce requests overlap, in their order, so that many share an fsync.
2. What a client can make us keep is bounded: nothing is read while many requests wait,
   and nothing begins while the client does not read its answers. What arrives counts in
   the budget that all connections of the server share.
3. What cannot be understood ends the connection after the answers before it, and
   nothing else.
4. A connection has one deadline, a number that a sweep checks; there is no timer.
   A part of a request gives the rest no more time, unless it is a large one.
"""

import asyncio
import ipaddress
import sys
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Protocol, cast

from penstock.api.kafka.wire.fields import Malformed
from penstock.api.kafka.wire.frames import Frames, Header, NotOffered, framed, read_header
from penstock.api.kafka.wire.schema import Api
from penstock.contract.limits import KIB, MIB
from penstock.listening.listener import BufferBudget, drain_tasks, expire_due, is_file_beyond
from penstock.runtime.interface import Histogram, LogEventWriter
from penstock.telemetry import KAFKA_FAILED

Parts = list[bytes | memoryview]

# They wait for others, not for us: nothing is lost if they are not answered.
_CUT_SHORT = frozenset({Api.FETCH, Api.JOIN_GROUP, Api.SYNC_GROUP})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Deadlines in seconds, and sizes in bytes."""

    # From connecting to the first request, and to the proof of who asks where one is needed.
    first_request_s: float = 30.0
    # A client that sends less than `arriving_bytes_min` of a request in this time is dropped; a smaller one has this
    # time.
    arriving_s: float = 30.0
    arriving_bytes_min: int = 64 * KIB
    # Between two requests. Kafka's own default; clients open another connection when they need one.
    idle_s: float = 600.0
    # A client that takes less than `answer_bytes_min` of its answers in this time is dropped.
    answer_s: float = 30.0
    answer_bytes_min: int = 64 * KIB
    # For the client to close its side, too.
    farewell_s: float = 5.0
    # The largest request.
    frame_bytes_max: int = 16 * MIB
    # A larger request up to this is refused in words, if it produces: the client would send it again and again.
    refused_frame_bytes_max: int = 128 * MIB
    # The largest request of a client that is not authenticated yet.
    stranger_frame_bytes_max: int = 64 * KIB
    # Requests of one connection that wait for their answers; then nothing more is read from it.
    pipelined_max: int = 64
    pipelined_bytes_max: int = 32 * MIB
    # Produce requests of one connection that are on their way to the disk at once.
    overlapping_max: int = 16
    # The batches of one answer; the first comes however large it is.
    fetched_bytes_max: int = 16 * MIB
    # Answers that clients have not read yet, of all connections together; then fetches get one batch at a time.
    unread_bytes_max: int = 256 * MIB
    connections_max: int = 16_000
    # A connection whose file has this number, or a higher one, is one too many: the store needs the rest.
    file_number_max: int = sys.maxsize
    # For a TLS handshake.
    handshake_s: float = 10.0
    # How often deadlines are checked.
    sweep_s: float = 1.0


class ConnectionClosed(Exception):
    """This connection has said something that it must not go on after."""

    def __init__(self, parts: Parts | None = None) -> None:
        super().__init__("the connection ends here")
        # What is answered before.
        self.parts = parts


class ClientSession(Protocol):
    """What a connection gives its requests to."""

    @property
    def is_stranger(self) -> bool:
        """Whether it is needed to be known, and not known yet, who asks."""
        ...

    async def answer(self, header: Header, frame: memoryview) -> Parts | None:
        """Return the body of the answer; None if there is to be none. Raises `Malformed` and `ConnectionClosed`."""
        ...

    def refuse(self, header: Header, front: memoryview) -> Parts | None:
        """Do the same for a request that is too large, by its front."""
        ...

    def end(self) -> None:
        """The connection is gone."""
        ...


class PendingRequest:
    __slots__ = ("header", "frame", "size", "task", "answer", "is_front", "is_done", "is_last")

    def __init__(self, header: Header | None, frame: memoryview, *, is_front: bool = False) -> None:
        # None for what cannot be understood: the connection ends when it is its turn.
        self.header = header
        self.frame: memoryview | None = frame
        self.size = len(frame)
        self.task: asyncio.Task[None] | None = None
        self.answer: Parts | None = None
        # Whether there was more of it than is taken.
        self.is_front = is_front
        self.is_done = False
        self.is_last = False


class Shared:
    """What all connections of a listener have in common."""

    def __init__(
        self,
        open_session: Callable[["Connection"], ClientSession],
        limits: Limits,
        log_event: LogEventWriter,
        budget: BufferBudget,
    ) -> None:
        self.open_session = open_session
        self.limits = limits
        # Of everything that is not answered yet, whatever protocol it came by.
        self.budget = budget
        self.log_event = log_event
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        # Of answers that were written to clients that do not read them.
        self.unread_bytes = 0
        # Those that are not read because too much is held.
        self.held_up: set[Connection] = set()
        self.is_stopping = False
        # Since the start.
        self.accepted = self.turned_away = self.timed_out = 0
        # How long requests took, by the number of their API.
        self.durations: dict[int, Histogram] = {}
        self.emptied: Callable[[], None] | None = None

    def count(self, api: int, seconds: float) -> None:
        histogram = self.durations.get(api)
        if histogram is None:
            histogram = self.durations[api] = Histogram()
        histogram.add(seconds)

    @property
    def sweep_s(self) -> float:
        return self.limits.sweep_s

    @property
    def handshake_s(self) -> float:
        return self.limits.handshake_s

    @property
    def open_connections(self) -> "set[Connection]":
        return self.connections

    def is_empty(self) -> bool:
        return not self.connections

    def connect(self) -> "Connection":
        return Connection(self, asyncio.get_running_loop())

    def sweep(self, now: float) -> None:
        expire_due(self.connections, now)

    async def finish(self, ends_at: float, hurry: asyncio.Event) -> int:
        """Begin no request, and finish those that change something.

        Long fetches, and members that wait for their group, are cut short: their clients ask again elsewhere.
        """
        for connection in [*self.connections]:
            connection.stop()
        return await drain_tasks(self.tasks, ends_at, hurry)

    def hold_up(self, connection: "Connection") -> None:
        """Let a connection wait until less is held."""
        if not self.held_up:
            self.budget.waiting.append(self._read_on)
        self.held_up.add(connection)

    def _read_on(self) -> None:
        held_up, self.held_up = self.held_up, set()
        for connection in held_up:
            connection.read_on()


class Connection(asyncio.BufferedProtocol):
    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._loop = loop
        self._frames = Frames(shared.limits.stranger_frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._session: ClientSession | None = None
        self._waiting: deque[PendingRequest] = deque()
        # How many of those that wait have begun; they are the first.
        self._begun = 0
        self._waiting_bytes = 0
        self._is_read_paused = self._is_write_paused = self._is_closing = False
        # Whether something came that nothing can be read after.
        self._is_read_over = False
        self._unread_bytes = 0
        # Of the request that is arriving: how much has come, and how much of it when its deadline was set.
        self._arrived_bytes = self._timed_bytes = 0
        # What it holds of the budget, and since when; see `listening.listener.Arriving`.
        self.held_bytes = 0
        self.held_since_s = 0.0
        self.due_at = inf
        # When a stranger has to have said who it is.
        self._known_by = inf

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        shared = self._shared
        self._transport = cast(asyncio.Transport, transport)
        shared.connections.add(self)
        limits = self._limits
        is_one_too_many = len(shared.connections) > limits.connections_max
        if is_one_too_many or shared.is_stopping or is_file_beyond(transport, limits.file_number_max):
            shared.turned_away += 1
            self.abort()
            return
        shared.accepted += 1
        self._session = shared.open_session(self)
        self._adjust_frame_limit()
        self.due_at = self._known_by = self._loop.time() + limits.first_request_s

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - it is a hint.
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            # It is not read any more, and it must have room.
            self._frames = Frames(self._limits.stranger_frame_bytes_max)
            return
        is_another = self._frames.is_empty
        self._arrived_bytes += nbytes
        for frame in self._frames.received(nbytes):
            self._take(frame, is_front=self._frames.is_front)
            is_another = True
        if self._frames.is_broken:
            self._end_after_answers()
        if is_another:
            self._arm()
        if self._count_arriving():
            self._begin()
            self._pause_if_full()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a client may go as it likes.
        shared = self._shared
        self._is_closing, self.due_at = True, inf
        if self._session is not None:
            self._session.end()
        for exchange in self._waiting:
            self._forget(exchange)
        self._waiting.clear()
        self._shared.budget.free(self)
        self._note_unread(0)
        shared.held_up.discard(self)
        shared.connections.discard(self)
        if shared.emptied is not None and not shared.connections:
            shared.emptied()

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._is_write_paused = True
        self._note_unread(self._transport.get_write_buffer_size())
        self.due_at = self._loop.time() + self._limits.answer_s

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._note_unread(0)
        self._begin()
        self._arm()

    # What a session asks.

    @property
    def fetched_bytes_max(self) -> int:
        """How large the batches of an answer may be now; 0 for the first one only."""
        left = self._limits.unread_bytes_max - self._shared.unread_bytes
        return max(0, min(left, self._limits.fetched_bytes_max))

    @property
    def addresses(self) -> tuple[tuple[str, int], str]:
        """Where the client reached us, and the host it came from."""
        assert self._transport is not None
        here = self._transport.get_extra_info("sockname")
        there = self._transport.get_extra_info("peername")
        return (here[0], here[1]), there[0] if there else ""

    @property
    def is_private(self) -> bool:
        """Whether the connection cannot be overheard: it has TLS, or does not leave the machine."""
        assert self._transport is not None
        if self._transport.get_extra_info("ssl_object") is not None:
            return True
        _, client_host = self.addresses
        try:
            return ipaddress.ip_address(client_host).is_loopback
        except ValueError:
            return False

    # What the listener calls.

    def stop(self) -> None:
        """Close as soon as nothing is on its way to the disk."""
        for exchange in [*self._waiting][self._begun :]:
            self._forget(exchange)
            self._waiting.pop()
        for exchange in self._waiting:
            if exchange.header is not None and exchange.header.key in _CUT_SHORT and exchange.task is not None:
                exchange.is_last = True
                exchange.task.cancel()
        if self._waiting:
            self._waiting[-1].is_last = True
        else:
            self.close()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.due_at = self._loop.time() + self._limits.farewell_s
            if self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def expire(self, now: float) -> None:
        """The deadline has passed: end what the client left hanging."""
        if self._is_write_paused and not self._is_closing:
            self._check_is_reading(now)
        elif self._is_closing:
            self.abort()
        elif self._is_read_paused or (self._waiting and self._frames.is_empty) or self._has_sent_enough():
            self._arm()
        else:
            self._shared.timed_out += 1
            self.close()

    def read_on(self) -> None:
        if self._is_read_paused and not self._is_read_over and not self._is_closing and not self._is_full():
            assert self._transport is not None
            self._is_read_paused = False
            self._transport.resume_reading()
            self._arm()

    def shed(self) -> None:
        """There is no room for the request that is arriving: it ends here, after the answers to those before it."""
        self._frames = Frames(self._limits.stranger_frame_bytes_max)
        if not self._is_closing:
            self._end_after_answers()

    # What happens here.

    def _count_arriving(self) -> bool:
        """Count what is kept of a request that is not whole; False if there is no room for it."""
        budget, size = self._shared.budget, self._frames.arriving_bytes
        if size < self.held_bytes:
            budget.free(self)
        if size > self.held_bytes and not budget.hold(self, size - self.held_bytes):
            self.shed()
            return False
        return True

    def _has_sent_enough(self) -> bool:
        sent = self._arrived_bytes - self._timed_bytes
        return not self._frames.is_empty and not self._is_stranger and sent >= self._limits.arriving_bytes_min

    @property
    def _is_stranger(self) -> bool:
        return self._session is None or self._session.is_stranger

    def _adjust_frame_limit(self) -> None:
        limits = self._limits
        is_stranger = self._is_stranger
        self._frames.bytes_max = limits.stranger_frame_bytes_max if is_stranger else limits.frame_bytes_max
        self._frames.passing_bytes_max = 0 if is_stranger else limits.refused_frame_bytes_max

    def _take(self, frame: memoryview, *, is_front: bool = False) -> None:
        """Put a request behind those that wait."""
        if self._waiting and self._waiting[-1].header is None:
            return
        header: Header | None = None
        try:
            header = read_header(frame)
        except (Malformed, NotOffered):
            pass
        if is_front and header is not None and header.key != Api.PRODUCE:
            header = None
        exchange = PendingRequest(header, frame, is_front=is_front)
        self._waiting.append(exchange)
        self._waiting_bytes += exchange.size
        self._shared.budget.take(exchange.size)

    def _begin(self) -> None:
        """Begin whatever may begin now."""
        waiting = self._waiting
        while self._begun < len(waiting) and not self._is_write_paused and not self._is_closing:
            exchange = waiting[self._begun]
            if self._begun and not self._may_overlap(exchange):
                return
            if exchange.header is None:
                self.close()
                return
            self._begun += 1
            exchange.task = self._loop.create_task(self._run(exchange, exchange.header))
            self._shared.tasks.add(exchange.task)
            exchange.task.add_done_callback(self._shared.tasks.discard)

    def _may_overlap(self, exchange: PendingRequest) -> bool:
        before = self._waiting[self._begun - 1]
        return (
            self._begun < self._limits.overlapping_max
            and exchange.header is not None
            and before.header is not None
            and exchange.header.key == before.header.key == Api.PRODUCE
        )

    async def _run(self, exchange: PendingRequest, header: Header) -> None:
        assert self._session is not None
        assert exchange.frame is not None
        began_s = perf_counter()
        try:
            if exchange.is_front:
                body = self._session.refuse(header, exchange.frame)
            else:
                body = await self._session.answer(header, exchange.frame)
            exchange.answer = None if body is None else framed(header, body)
        except Malformed:
            exchange.is_last = True
        except ConnectionClosed as ended:
            exchange.is_last = True
            exchange.answer = None if ended.parts is None else framed(header, ended.parts)
        except Exception as error:
            exchange.is_last = True
            self._shared.log_event(
                KAFKA_FAILED, key=header.key, version=header.version, error="".join(traceback.format_exception(error))
            )
        finally:
            exchange.is_done = True
            exchange.frame = None
            self._shared.count(header.key, perf_counter() - began_s)
            self._write_answers()

    def _write_answers(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].is_done and not self._is_closing:
            exchange = waiting.popleft()
            self._begun -= 1
            self._waiting_bytes -= exchange.size
            self._shared.budget.give_back(exchange.size)
            if exchange.answer is not None:
                self._write(exchange.answer)
            if exchange.is_last:
                self.close()
        self._adjust_frame_limit()
        self._begin()
        if not waiting and not self._is_write_paused:
            self._arm()
        self.read_on()

    def _write(self, parts: Parts) -> None:
        assert self._transport is not None
        if len(parts) == 1:
            self._transport.write(parts[0])
        elif sum(map(len, parts)) < _JOINED_BYTES_MAX:
            self._transport.write(b"".join(parts))
        else:
            # The batches go to the kernel from where they are.
            self._transport.writelines(parts)

    def _arm(self) -> None:
        """Begin the time for what the connection waits for now."""
        if self._is_closing or self._is_write_paused:
            return
        if self._is_stranger:
            # However much it says: this is the time for saying who it is.
            self.due_at = inf if self._waiting else self._known_by
        elif not self._frames.is_empty and not self._is_read_paused:
            self.due_at = self._loop.time() + self._limits.arriving_s
            self._timed_bytes = self._arrived_bytes
        else:
            self.due_at = inf if self._waiting else self._loop.time() + self._limits.idle_s

    def _end_after_answers(self) -> None:
        """What comes now is of no use any more."""
        if not self._waiting:
            self.close()
            return
        self._take(memoryview(b""))
        self._is_read_over = True
        self._pause_reading()

    def _is_full(self) -> bool:
        limits = self._limits
        return len(self._waiting) >= limits.pipelined_max or self._waiting_bytes >= limits.pipelined_bytes_max

    def _pause_if_full(self) -> None:
        is_crowded = self._shared.budget.is_crowded
        if is_crowded:
            self._shared.hold_up(self)
        if is_crowded or self._is_full():
            self._pause_reading()

    def _pause_reading(self) -> None:
        if not self._is_read_paused and not self._is_closing:
            assert self._transport is not None
            self._is_read_paused = True
            self._transport.pause_reading()

    def _check_is_reading(self, now: float) -> None:
        assert self._transport is not None
        left = self._transport.get_write_buffer_size()
        if self._unread_bytes - left < self._limits.answer_bytes_min:
            self._shared.timed_out += 1
            self.abort()
            return
        self._note_unread(left)
        self.due_at = now + self._limits.answer_s

    def _note_unread(self, size: int) -> None:
        self._shared.unread_bytes += size - self._unread_bytes
        self._unread_bytes = size

    def _forget(self, exchange: PendingRequest) -> None:
        """The answer is not awaited any more. A request that changes something is finished all the same."""
        self._waiting_bytes -= exchange.size
        self._shared.budget.give_back(exchange.size)
        if exchange.task is not None and exchange.header is not None and exchange.header.key in _CUT_SHORT:
            exchange.task.cancel()


_JOINED_BYTES_MAX = 16_384
