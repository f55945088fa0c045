"""Doors that connections come through, whatever is spoken behind them: opened, watched, closed after the last answer.

    opened ──▶ swept, now and then ──▶ finished: nobody is at work, or time is up ──▶ emptied: nobody is left

What listeners of all protocols have in common. Which requests are begun while a server
stops, and which are cut short, is for each of them to say.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Protocol

_BACKLOG = 2_048
_HANDSHAKE_S = 10.0
# For tasks that were cut off to come to their end, and for last answers to reach their clients.
_FAREWELL_S = 1.0


class Crowd(Protocol):
    """All connections of a listener."""

    # Called when the last of them is gone.
    emptied: Callable[[], None] | None

    @property
    def connections(self) -> Collection[object]: ...


async def opened(
    door: socket.socket, make: Callable[[], asyncio.BaseProtocol], tls: ssl.SSLContext | None
) -> asyncio.Server:
    """Accept connections at a door, each with what ``make`` returns for it."""
    handshake_s = None if tls is None else _HANDSHAKE_S
    return await asyncio.get_running_loop().create_server(
        make,
        sock=door,
        ssl=tls,
        backlog=_BACKLOG,
        ssl_handshake_timeout=handshake_s,
        ssl_shutdown_timeout=handshake_s,
    )


def is_file_beyond(transport: asyncio.BaseTransport, number_max: int) -> bool:
    """Whether a connection has taken a file that is kept for something else than connections."""
    door = transport.get_extra_info("socket")
    return door is not None and door.fileno() >= number_max


@asynccontextmanager
async def swept(look: Callable[[], None], every_s: float) -> AsyncIterator[None]:
    """Look after connections again and again until this ends."""

    async def sweep() -> None:
        while True:
            look()
            await asyncio.sleep(every_s)

    # Not a TaskGroup, which would wrap what a server raises at its start into a group.
    sweeping = asyncio.create_task(sweep())  # noqa: TID251 - it is awaited below.
    try:
        yield
    finally:
        sweeping.cancel()
        await asyncio.wait([sweeping])


async def finished(tasks: Collection[asyncio.Task[None]], ends_at: float, hurry: asyncio.Event) -> int:
    """Return when there are no tasks any more, or the time is up, or it hurries; return how many were cut off.

    ``tasks`` is looked at again and again: some end, and others may begin.
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


async def emptied(crowd: Crowd, ends_at: float, hurry: asyncio.Event) -> None:
    """Return when nobody is connected any more, or will not be in time."""
    if crowd.connections and not hurry.is_set():
        gone = asyncio.Event()
        crowd.emptied = gone.set
        left_s = ends_at - asyncio.get_running_loop().time()
        await happened(gone, max(0.0, min(left_s, _FAREWELL_S)))


async def happened(event: asyncio.Event, seconds: float) -> None:
    """Return when something has happened, or has not in this time."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        pass
