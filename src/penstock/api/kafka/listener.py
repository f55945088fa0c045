"""Accepts connections of Kafka clients, looks at their deadlines, and lets them go when the server stops."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from penstock.api.kafka.connection import Connection, Shared

BACKLOG = 2_048
_HANDSHAKE_S = 10.0


class Listener:
    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._servers: list[asyncio.Server] = []

    async def _listen(self, doors: Sequence[socket.socket], tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        handshake_s = None if tls is None else _HANDSHAKE_S
        for door in doors:
            server = await loop.create_server(
                lambda: Connection(self.shared, loop),
                sock=door,
                ssl=tls,
                backlog=BACKLOG,
                ssl_handshake_timeout=handshake_s,
                ssl_shutdown_timeout=handshake_s,
            )
            self._servers.append(server)

    async def _sweep(self) -> None:
        shared, loop = self.shared, asyncio.get_running_loop()
        while True:
            await asyncio.sleep(shared.limits.sweep_s)
            now = loop.time()
            for connection in [each for each in shared.connections if each.due_at <= now]:
                connection.expire(now)

    async def drain(self, timeout_s: float, hurry: asyncio.Event) -> int:
        """Take no new work and finish what changes something, unless in a hurry; return how many were cut off.

        Long fetches, and members that wait for their group, are let go at once: their clients ask again elsewhere.
        """
        shared, loop = self.shared, asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        shared.is_stopping = True
        for server in self._servers:
            server.close()
        for connection in [*shared.connections]:
            connection.stop()
        await self._finish_work(ends_at, hurry)
        cut_off = set(shared.tasks)
        for task in cut_off:
            task.cancel()
        if cut_off:
            await asyncio.wait(cut_off, timeout=1.0)
        await self._let_go(loop.time() if hurry.is_set() else ends_at)
        return len(cut_off)

    async def _finish_work(self, ends_at: float, hurry: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        hurried = loop.create_task(hurry.wait())
        try:
            while (tasks := self.shared.tasks) and not hurry.is_set() and (left_s := ends_at - loop.time()) > 0:
                await asyncio.wait([*tasks, hurried], timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()

    async def _let_go(self, ends_at: float) -> None:
        """Let the last answers reach their clients."""
        shared = self.shared
        if shared.connections:
            emptied = asyncio.Event()
            shared.emptied = emptied.set
            left_s = ends_at - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(emptied.wait(), max(0.0, min(left_s, 1.0)))
            except TimeoutError:
                pass
        for connection in [*shared.connections]:
            connection.abort()


@asynccontextmanager
async def listening(
    doors: Sequence[socket.socket], shared: Shared, tls: ssl.SSLContext | None
) -> AsyncIterator[Listener]:
    """Listen, and answer, until this ends; then nobody is connected any more."""
    listener = Listener(shared)
    # Not a TaskGroup, which would wrap what a server raises at its start into a group.
    sweeping = asyncio.create_task(listener._sweep())  # noqa: TID251 - it is awaited below.
    try:
        await listener._listen(doors, tls)
        yield listener
    finally:
        await listener.drain(0, asyncio.Event())
        sweeping.cancel()
        await asyncio.wait([sweeping])
