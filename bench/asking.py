"""Connections that ask one and the same thing again and again: the cheapest client there can be.

Answers are small, come in one piece and are not read beyond their status line.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import cast


class Tally:
    """What all connections have heard so far."""

    def __init__(self) -> None:
        self.answers = 0
        self.failures = 0
        self.waits_ms: array[float] = array("d")


class Asking(asyncio.Protocol):
    """One connection. It asks again when it is answered, until it is closed."""

    def __init__(self, request: bytes, tally: Tally) -> None:
        self._request = request
        self._tally = tally

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop do not inherit from those of asyncio.
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._tally.answers += 1
        self._tally.failures += not data.startswith(b"HTTP/1.1 2")
        self._tally.waits_ms.append((perf_counter() - self._asked_at) * 1_000)
        self._ask()

    def _ask(self) -> None:
        self._asked_at = perf_counter()
        self._transport.write(self._request)


@asynccontextmanager
async def connections(port: int, request: bytes, count: int) -> AsyncIterator[Tally]:
    """Open so many connections to this machine, let them ask, and close them in the end."""
    loop, tally = asyncio.get_running_loop(), Tally()
    opened: list[asyncio.BaseTransport] = []
    try:
        for _ in range(count):
            opened += (await loop.create_connection(lambda: Asking(request, tally), "127.0.0.1", port))[:1]
        yield tally
    finally:
        for transport in opened:
            transport.close()
        # What was closed is told so in the next turn of the loop.
        await asyncio.sleep(0)
