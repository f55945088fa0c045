"""A proxy between client and server that loses answers: the request arrives, and the client gets no answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class LossyProxy:
    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._host, self._port = parts.hostname, parts.port
        self.url = ""
        # The endings of paths whose next answer is lost; each once.
        self.loses: list[str] = []
        self.lost = 0
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(self._host, self._port)
        try:
            while True:
                request = await _message(reader)
                upstream_writer.write(request)
                answer = await _message(upstream_reader)
                self.requests += 1
                path = request.split(b" ", 2)[1].decode().partition("?")[0]
                ending = next((each for each in self.loses if path.endswith(each)), None)
                if ending is not None:
                    self.loses.remove(ending)
                    self.lost += 1
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            upstream_writer.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    found = head.lower().split(b"content-length: ")
    length = int(found[1].split(b"\r\n")[0]) if len(found) > 1 else 0
    return head + await reader.readexactly(length)


@asynccontextmanager
async def lossy_proxy(upstream: str) -> AsyncIterator[LossyProxy]:
    proxy = LossyProxy(upstream)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await server.wait_closed()
