"""A database that no longer answers, as seen over the network: connections are made, and nothing comes back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

_SOCKET = ".s.PGSQL.5432"
_CHUNK = 65_536


class Relay:
    """Passes bytes on between clients on TCP and a server, until it falls silent.

    A connection that was there when it did stays silent for ever, as one that a router has forgotten.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._speaking = asyncio.Event()
        self._speaking.set()
        # How many have come so far.
        self.connections = 0
        # Whether anything was sent since the silence began.
        self.was_asked = asyncio.Event()

    def fall_silent(self) -> None:
        self._speaking.clear()
        self._speaking = asyncio.Event()
        self.was_asked.clear()

    def speak(self) -> None:
        """Serve those who come from now on."""
        self._speaking.set()

    def forget_all(self) -> None:
        """Let the connections there are be silent, and serve those who come from now on."""
        self.fall_silent()
        self.speak()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        speaking = self._speaking
        self.connections += 1
        try:
            if not speaking.is_set():
                # Whatever was said, nothing is answered; until its end, so that there are no warnings at the end.
                while await reader.read(_CHUNK):
                    self.was_asked.set()
                return
            upstream_reader, upstream_writer = await asyncio.open_unix_connection(f"{self._server}/{_SOCKET}")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pass(reader, upstream_writer, speaking, self.was_asked))
                tasks.create_task(_pass(upstream_reader, writer, speaking))
        except* (ConnectionError, EOFError):
            pass
        finally:
            writer.close()


async def _pass(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    speaking: asyncio.Event,
    swallowed: asyncio.Event | None = None,
) -> None:
    try:
        while data := await reader.read(_CHUNK):
            if speaking.is_set():
                writer.write(data)
                await writer.drain()
            elif swallowed is not None:
                swallowed.set()
        raise EOFError
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def relayed(url: str, *, connect_s: int) -> AsyncIterator[tuple[Relay, str]]:
    """Lay a way over TCP to the server of a URL, and return it with the URL that leads there.

    A client that cannot connect within ``connect_s`` takes it for silent: only where it is, that may be short.
    """
    (server,) = parse_qs(urlsplit(url).query)["host"]
    relay = Relay(server)
    async with await asyncio.start_server(relay.serve, "127.0.0.1", 0) as doors:
        port = doors.sockets[0].getsockname()[1]
        yield relay, url.replace(f"host={server}", f"host=127.0.0.1&port={port}&connect_timeout={connect_s}")
