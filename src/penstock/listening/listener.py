"""Accept connections, check their deadlines, and drain them when the server stops; for HTTP and Kafka alike.

    accept ──▶ answer ──▶ drain ─────────────────────────────────────▶ close
                            │ no new connections                         │ what is left
                            │ requests are finished, or time is up       │ is aborted
                            └ last answers reach their clients

Each protocol has a `ConnectionSet`. It decides which requests may still begin while the server
stops, and which are cut short.

Law of this file: no connection has a timer. Each one has a deadline, a number, and a sweep
compares all deadlines with the clock.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

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
