"""Accepts connections of Kafka clients, looks at their deadlines, and lets them go when the server stops."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from penstock.api.kafka.connection import Connection, Shared
from penstock.runtime.doors import emptied, finished, opened, swept


class Listener:
    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._servers: list[asyncio.Server] = []

    async def _listen(self, doors: Sequence[socket.socket], tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        for door in doors:
            self._servers.append(await opened(door, lambda: Connection(self.shared, loop), tls))

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self.shared.connections if each.due_at <= now]:
            connection.expire(now)

    async def drain(self, timeout_s: float, hurry: asyncio.Event) -> int:
        """Take no new work and finish what changes something, unless in a hurry; return how many were cut off.

        Long fetches, and members that wait for their group, are let go at once: their clients ask again elsewhere.
        """
        shared = self.shared
        ends_at = asyncio.get_running_loop().time() + timeout_s
        shared.is_stopping = True
        for server in self._servers:
            server.close()
        for connection in [*shared.connections]:
            connection.stop()
        cut_off = await finished(shared.tasks, ends_at, hurry)
        # The last answers reach their clients.
        await emptied(shared, ends_at, hurry)
        for connection in [*shared.connections]:
            connection.abort()
        return cut_off


@asynccontextmanager
async def listening(
    doors: Sequence[socket.socket], shared: Shared, tls: ssl.SSLContext | None
) -> AsyncIterator[Listener]:
    """Listen, and answer, until this ends; then nobody is connected any more."""
    listener = Listener(shared)
    async with swept(listener._look, shared.limits.sweep_s):
        try:
            await listener._listen(doors, tls)
            yield listener
        finally:
            await listener.drain(0, asyncio.Event())
