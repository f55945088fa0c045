"""Accepts connections, looks at their deadlines, and lets them go one after the other when the server stops.

open ──▶ answers ──▶ drain ──────────────────────────────────▶ close
                       │ no new connections                      │ what is left
                       │ requests that come are answered,        │ is aborted
                       │ each as the last of its connection
                       └ until nobody is at work, or time is up
"""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

from uvicorn.config import Config

from penstock.listening.http_connection import Connection, Shared
from penstock.runtime.doors import emptied, finished, happened, opened, swept

# A client that sends on an idle connection just when the server stops is told so, rather than cut off.
GRACE_S = 0.2


class Listener:
    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._servers: list[asyncio.Server] = []

    @property
    def connections(self) -> int:
        return len(self.shared.connections)

    async def _listen(self, doors: Sequence[socket.socket], tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        # The application is not here: each request looks for it, as it changes when the store is open.
        config = Config(app=_nobody, http=Connection, ws="none", lifespan="off", log_config=None, access_log=False)
        config.load()
        for door in doors:
            self._servers.append(await opened(door, lambda: Connection(config, self.shared, loop), tls))

    def _look(self) -> None:
        shared, now = self.shared, asyncio.get_running_loop().time()
        shared.date = b"date: %b\r\n" % formatdate(time.time(), usegmt=True).encode()
        for connections in (shared.connections, shared.refused):
            for connection in [each for each in connections if each.due_at <= now]:
                connection.expire(now)

    async def drain(self, timeout_s: float, hurry: asyncio.Event) -> int:
        """Return when all requests are answered, or it is time to go; return how many were not answered."""
        shared = self.shared
        ends_at = asyncio.get_running_loop().time() + timeout_s
        shared.is_stopping = True
        for server in self._servers:
            server.close()
        await happened(hurry, min(GRACE_S, timeout_s) if shared.connections else 0)
        cut_off = await finished(shared.state.tasks, ends_at, hurry)
        for connection in [each for each in shared.connections if each.is_idle()]:
            connection.close()
        # The last answers reach their clients.
        await emptied(shared, ends_at, hurry)
        for connection in [*shared.connections, *shared.refused]:
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


async def _nobody(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - so it is known for an application.
    raise AssertionError("requests go to the shared application")
