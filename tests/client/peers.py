"""A server that does what a test tells it to, byte by byte: what the transport has to live with."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.client.blocking_http import BlockingTransport, drive
from penstock.client.caller import Answer, Transport
from penstock.client.http import Address, HttpTransport
from tests.waiting import eventually

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass
class Peer:
    address: Address
    # How many connections were made, and what came over all of them.
    connections: int = 0
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def request(self, reader: asyncio.StreamReader) -> bytes:
        """Read one request and return its body."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        self.heads.append(head)
        self.bodies.append(body)
        return body


Talk = Callable[[Peer, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def peer(talk: Talk) -> AsyncIterator[Peer]:
    """Run ``talk`` for each connection, and close it when that ends."""
    found = Peer(Address("127.0.0.1", 0, False))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        try:
            await talk(found, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.address = Address("127.0.0.1", server.sockets[0].getsockname()[1], False)
    try:
        yield found
    finally:
        server.close()
        await server.wait_closed()


class ThreadedTransport:
    """A blocking transport whose requests each run in a thread, so that one test says what both transports do."""

    def __init__(self, transport: BlockingTransport) -> None:
        self.transport = transport

    async def request(self, method: str, path: str, **said: Any) -> Answer:
        return await asyncio.to_thread(drive, self.transport.request(method, path, **said))

    async def close(self) -> None:
        await asyncio.to_thread(drive, self.transport.close())


TransportTo = Callable[..., AbstractAsyncContextManager[Transport]]


@asynccontextmanager
async def looping_transport_to(found: Peer, *, connections_max: int = 10) -> AsyncIterator[Transport]:
    transport = HttpTransport(found.address, connections_max=connections_max)
    try:
        yield transport
    finally:
        await transport.close()


@asynccontextmanager
async def blocking_transport_to(found: Peer, *, connections_max: int = 10) -> AsyncIterator[Transport]:
    transport = ThreadedTransport(BlockingTransport(found.address, connections_max=connections_max))
    try:
        yield transport
    finally:
        await transport.close()


async def nothing_idle(transport: Transport) -> None:
    """Return when the transport has heard, or could hear, that its connections were closed."""
    if isinstance(transport, ThreadedTransport):
        idle = transport.transport._idle
        await eventually(lambda: not any(each.is_quiet() for each in idle))
    else:
        assert isinstance(transport, HttpTransport)
        await eventually(lambda: not transport._idle)


async def polite(found: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer everything."""
    while True:
        await found.request(reader)
        writer.write(OK)
