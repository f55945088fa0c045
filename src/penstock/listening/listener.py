"""Accept connections, check their deadlines, and drain them when the server stops; for HTTP and Kafka alike.

    accept ──▶ answer ──▶ drain ─────────────────────────────────────▶ close
                            │ no new connections                         │ what is left
                            │ requests are finished, or time is up       │ is aborted
                            └ last answers reach their clients

Each protocol has a `ConnectionSet`. It decides which requests may still begin while the server
stops, and which are cut short.

Law of this file: no connection has a timer. Each one has a deadline, a number, and a sweep
compares all deadlines with the clock.

One budget holds what all connections have sent and no request has used yet:

    arriving ──hold──▶ counted ──whole──▶ kept while it is worked on ──▶ freed
                          │
                          └─ past the limit: shed, the costliest first

1. Bytes are counted when they have arrived, not when they are announced.
2. Past the limit nothing waits: requests that are still arriving are shed until there is room again. So two
   half-read bodies never wait for each other.
3. Those that have held the most bytes for the longest time go first. A request that comes quickly outlives any number
   that were begun and left.
4. A whole request is never shed. A listener that can wait stops reading while much of it is kept (`is_crowded`).
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar


class Arriving(Protocol):
    """A request that has begun to arrive."""

    # What it holds of the budget, and since when; written by the budget alone.
    held_bytes: int
    held_since_s: float

    def shed(self) -> None:
        """Refuse it, and keep nothing of it. The budget has taken its bytes off the count already."""
        ...


class BufferBudget:
    def __init__(self, bytes_max: int, now_s: Callable[[], float]) -> None:
        self.bytes_max = bytes_max
        self._now_s = now_s
        self._arriving: set[Arriving] = set()
        # Of everything, and of whole requests alone.
        self.held_bytes = self.kept_bytes = 0
        # Requests that were refused for want of room, since the start.
        self.shed = 0
        # Called when it is no longer crowded; once each.
        self.waiting: list[Callable[[], None]] = []

    @property
    def is_crowded(self) -> bool:
        """Whether requests that are worked on hold half of the budget, so that no more should be begun."""
        return self.kept_bytes > self.bytes_max // 2

    def hold(self, request: Arriving, size_bytes: int) -> bool:
        """Count what has arrived of a request; False if there is no room for it, and it is to be refused."""
        if not request.held_bytes:
            request.held_since_s = self._now_s()
            self._arriving.add(request)
        request.held_bytes += size_bytes
        self.held_bytes += size_bytes
        return self.held_bytes <= self.bytes_max or self._make_room(request)

    def keep(self, request: Arriving) -> None:
        """A request is whole: it is worked on, and not shed any more."""
        if request in self._arriving:
            self._arriving.discard(request)
            self.kept_bytes += request.held_bytes

    def free(self, request: Arriving) -> None:
        """Nothing is left of a request."""
        size_bytes, request.held_bytes = request.held_bytes, 0
        if request in self._arriving:
            self._arriving.discard(request)
            self.held_bytes -= size_bytes
        else:
            self.give_back(size_bytes)

    def take(self, size_bytes: int) -> None:
        """Count a request that is whole, and was not counted while it arrived."""
        self.kept_bytes += size_bytes
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.kept_bytes -= size_bytes
        self.held_bytes -= size_bytes
        if self.waiting and not self.is_crowded:
            waiting, self.waiting = self.waiting, []
            for wake in waiting:
                wake()

    def _make_room(self, newest: Arriving) -> bool:
        """Shed the costliest, at once down to seven eighths of the limit; return whether the newest may stay."""
        now_s, wanted = self._now_s(), self.bytes_max * 7 // 8
        # Of those that are equally old the largest; a clock may stand still for a moment.
        costliest = sorted(self._arriving, key=lambda each: each.held_bytes * (now_s - each.held_since_s + 0.001))
        while costliest and self.held_bytes > wanted:
            request = costliest.pop()
            if not request.held_bytes:
                # It went with another request of its connection.
                continue
            self.free(request)
            self.shed += 1
            if request is not newest:
                request.shed()
        return newest.held_bytes > 0


_BACKLOG = 2_048
# For cancelled tasks to end, and for last answers to reach their clients.
_FAREWELL_S = 1.0


class OpenConnection(Protocol):
    # By the clock of the loop.
    due_at: float

    def expire(self, now: float) -> None:
        """The deadline has passed: end what the client left hanging, or set another deadline."""
        ...

    def abort(self) -> None: ...


class ConnectionSet(Protocol):
    """All connections of a listener."""

    is_stopping: bool
    # Called when the last connection is gone.
    emptied: Callable[[], None] | None

    @property
    def sweep_s(self) -> float:
        """How often deadlines are checked."""
        ...

    @property
    def handshake_s(self) -> float:
        """How long a TLS handshake may take."""
        ...

    @property
    def open_connections(self) -> Collection[OpenConnection]:
        """All of them, also those that were refused and are not closed yet."""
        ...

    def connect(self) -> asyncio.BaseProtocol:
        """Return the protocol for a new connection."""
        ...

    def sweep(self, now: float) -> None:
        """Expire the connections whose deadline has passed, by `expire_due`."""
        ...

    def is_empty(self) -> bool:
        """Whether no accepted connection is left."""
        ...

    async def finish(self, ends_at: float, hurry: asyncio.Event) -> int:
        """Finish requests, by `drain_tasks`, and close idle connections; return how many requests were cut off."""
        ...


S = TypeVar("S", bound=ConnectionSet)


class Listener(Generic[S]):
    def __init__(self, shared: S) -> None:
        self.shared = shared
        self._servers: list[asyncio.Server] = []

    async def accept(self, sockets: Sequence[socket.socket], tls: ssl.SSLContext | None) -> None:
        handshake_s = None if tls is None else self.shared.handshake_s
        for each in sockets:
            server = await asyncio.get_running_loop().create_server(
                self.shared.connect,
                sock=each,
                ssl=tls,
                backlog=_BACKLOG,
                ssl_handshake_timeout=handshake_s,
                ssl_shutdown_timeout=handshake_s,
            )
            self._servers.append(server)

    async def sweep(self) -> None:
        """Check deadlines until this is cancelled."""
        while True:
            self.shared.sweep(asyncio.get_running_loop().time())
            await asyncio.sleep(self.shared.sweep_s)

    async def drain(self, timeout_s: float, hurry: asyncio.Event) -> int:
        """Accept nothing more, and let all connections end; return how many requests were cut off.

        Returns when all requests are answered, the time is up, or ``hurry`` is set.
        """
        shared = self.shared
        ends_at = asyncio.get_running_loop().time() + timeout_s
        shared.is_stopping = True
        for server in self._servers:
            server.close()
        cut_off = await shared.finish(ends_at, hurry)
        if not shared.is_empty() and not hurry.is_set():
            # The last answers reach their clients.
            gone = asyncio.Event()
            shared.emptied = gone.set
            left_s = ends_at - asyncio.get_running_loop().time()
            await happened(gone, max(0.0, min(left_s, _FAREWELL_S)))
        for connection in [*shared.open_connections]:
            connection.abort()
        return cut_off


@asynccontextmanager
async def listening(
    sockets: Sequence[socket.socket], shared: S, tls: ssl.SSLContext | None
) -> AsyncIterator[Listener[S]]:
    """Listen and answer until this ends; then all connections are closed."""
    listener = Listener(shared)
    # Not a TaskGroup, which would wrap what a server raises at its start into a group.
    sweeping = asyncio.create_task(listener.sweep())  # noqa: TID251 - it is awaited below.
    try:
        await listener.accept(sockets, tls)
        yield listener
    finally:
        try:
            await listener.drain(0, asyncio.Event())
        finally:
            sweeping.cancel()
            await asyncio.wait([sweeping])


def expire_due(connections: Iterable[OpenConnection], now: float) -> None:
    for connection in [each for each in connections if each.due_at <= now]:
        connection.expire(now)


def is_file_beyond(transport: asyncio.BaseTransport, number_max: int) -> bool:
    """Whether the file of a connection has a number that is reserved for the store."""
    own = transport.get_extra_info("socket")
    return own is not None and own.fileno() >= number_max


async def drain_tasks(tasks: Collection[asyncio.Task[None]], ends_at: float, hurry: asyncio.Event) -> int:
    """Wait until no task is left, the time is up, or ``hurry`` is set; cancel the others and return their number.

    ``tasks`` may change meanwhile: tasks end, and others begin.
    """
    loop = asyncio.get_running_loop()
    hurried = loop.create_task(hurry.wait())
    try:
        while tasks and not hurry.is_set() and (left_s := ends_at - loop.time()) > 0:
            await asyncio.wait([*tasks, hurried], timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        hurried.cancel()
    cut_off = set(tasks)
    for task in cut_off:
        task.cancel()
    if cut_off:
        await asyncio.wait(cut_off, timeout=_FAREWELL_S)
    return len(cut_off)


async def happened(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most this long."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        pass
