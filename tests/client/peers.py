"""A server that does what a test tells it to, byte by byte: what the transport has to live with."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from penstock.client.http import Address, HttpTransport

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


@asynccontextmanager
async def transport_to(found: Peer, *, connections_max: int = 10) -> AsyncIterator[HttpTransport]:
    transport = HttpTransport(found.address, connections_max=connections_max)
    try:
        yield transport
    finally:
        await transport.close()


async def polite(found: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer everything."""
    while True:
        await found.request(reader)
        writer.write(OK)
