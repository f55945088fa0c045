"""A wire to PostgreSQL that can be cut at the worst moment: the server has committed, and its answer is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_SOCKET = ".s.PGSQL.5432"
_CHUNK = 65_536


class Wire:
    """Passes bytes on between clients and a server."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._tasks: set[asyncio.Task[None]] = set()
        self._cuts_answer = False
        self._cuts_question = False
        self._cuts_commits = 0
        self._refuses = 0
        self.cuts = 0

    def cut_next_answer(self) -> None:
        """Break the connection over which the next answer comes, instead of passing it on."""
        self._cuts_answer = True

    def cut_next_question(self) -> None:
        """Break the connection over which the next question comes, instead of passing it on."""
        self._cuts_question = True

    def cut_next_commits(self, count: int = 1) -> None:
        """Break the connections over which the next answers come that a transaction is committed."""
        self._cuts_commits = count

    def refuse_next_connections(self, count: int) -> None:
        """Refuse this many connections, as a server that is being started."""
        self._refuses = count

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            self._refuses -= 1
            writer.close()
            return
        upstream_reader, upstream_writer = await asyncio.open_unix_connection(str(self._server / _SOCKET))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass(reader, upstream_writer, is_answer=False))
                tasks.create_task(self._pass(upstream_reader, writer, is_answer=True))
        except* (ConnectionError, EOFError):
            pass
        finally:
            for each in (writer, upstream_writer):
                each.close()
                with suppress(ConnectionError):
                    await each.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        while data := await reader.read(_CHUNK):
            if is_answer and self._cuts_commits and b"COMMIT\0" in data:
                self._cuts_commits -= 1
                self.cuts += 1
                raise ConnectionAbortedError
            if is_answer and self._cuts_answer:
                self._cuts_answer = False
                self.cuts += 1
                raise ConnectionAbortedError
            if not is_answer and self._cuts_question:
                self._cuts_question = False
                self.cuts += 1
                raise ConnectionAbortedError
            writer.write(data)
            await writer.drain()
        raise EOFError


@asynccontextmanager
async def wire(url: str, folder: Path) -> AsyncIterator[tuple[Wire, str]]:
    """Lay a wire to the server of a URL, and return it with the URL of its other end."""
    (server,) = parse_qs(urlsplit(url).query)["host"]
    laid = Wire(Path(server))
    async with await asyncio.start_unix_server(laid.serve, str(folder / _SOCKET)):
        yield laid, url.replace(server, str(folder))
