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

from penstock.listening.connection import Connection, Shared
from penstock.listening.sockets import BACKLOG

# A client that sends on an idle connection just when the server stops is told so, rather than cut off.
GRACE_S = 0.2
_HANDSHAKE_S = 10.0


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
        handshake_s = None if tls is None else _HANDSHAKE_S
        for door in doors:
            server = await loop.create_server(
                lambda: Connection(config, self.shared, loop),
                sock=door,
                ssl=tls,
                backlog=BACKLOG,
                ssl_handshake_timeout=handshake_s,
                ssl_shutdown_timeout=handshake_s,
            )
            self._servers.append(server)

    async def _tick(self) -> None:
        shared, loop = self.shared, asyncio.get_running_loop()
        while True:
            shared.date = b"date: %b\r\n" % formatdate(time.time(), usegmt=True).encode()
            now = loop.time()
            for connections in (shared.connections, shared.refused):
                for connection in [each for each in connections if each.due_at <= now]:
                    connection.expire(now)
            await asyncio.sleep(shared.patience.sweep_s)

    async def drain(self, timeout_s: float, hurry: asyncio.Event) -> int:
        """Return when all requests are answered, or it is time to go; return how many were not answered."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        self.shared.is_stopping = True
        for server in self._servers:
            server.close()
        await _wait(hurry, min(GRACE_S, timeout_s) if self.shared.connections else 0)
        cut_off = await self._finish_work(ends_at, hurry)
        for connection in [each for each in self.shared.connections if each.is_idle()]:
            connection.close()
        await self._let_go(ends_at, hurry)
        return cut_off

    async def _finish_work(self, ends_at: float, hurry: asyncio.Event) -> int:
        loop = asyncio.get_running_loop()
        hurried = loop.create_task(hurry.wait())
        try:
            while (tasks := self.shared.state.tasks) and not hurry.is_set() and (left_s := ends_at - loop.time()) > 0:
                await asyncio.wait([*tasks, hurried], timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
        tasks = set(self.shared.state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        return len(tasks)

    async def _let_go(self, ends_at: float, hurry: asyncio.Event) -> None:
        """Let the last answers reach their clients."""
        if self.shared.connections and not hurry.is_set():
            left_s = ends_at - asyncio.get_running_loop().time()
            emptied = asyncio.Event()
            self.shared.emptied = emptied.set
            await _wait(emptied, max(0.0, min(left_s, 1.0)))
        for connection in [*self.shared.connections, *self.shared.refused]:
            connection.abort()


@asynccontextmanager
async def listening(
    doors: Sequence[socket.socket], shared: Shared, tls: ssl.SSLContext | None
) -> AsyncIterator[Listener]:
    """Listen, and answer, until this ends; then nobody is connected any more."""
    listener = Listener(shared)
    # Not a TaskGroup, which would wrap what a server raises at its start into a group.
    ticking = asyncio.create_task(listener._tick())  # noqa: TID251 - it is awaited below.
    try:
        await listener._listen(doors, tls)
        yield listener
    finally:
        await listener.drain(0, asyncio.Event())
        ticking.cancel()
        await asyncio.wait([ticking])


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        pass


async def _nobody(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - so it is known for an application.
    raise AssertionError("requests go to the shared application")
