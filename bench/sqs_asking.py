"""Recorded requests of SQS, sent by tasks of this process where wrk is not installed.

Each task has a connection, and sends, receives and deletes in turn. It takes about as much CPU time as a server
of ours, on the same cores, so the figures are lower than wrk's, and the row says who asked.
"""

import asyncio
import re
from array import array
from time import perf_counter

from bench import traffic
from bench.peer import Window
from bench.processes import Server, own_cpu
from bench.sqs_requests import BATCH, CALLS, HANDLE, Recorded
from bench.traffic import Traffic

_HANDLES = re.compile(rb'"ReceiptHandle":\s*"([^"]+)"')
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
_CLOSES = re.compile(rb"connection: *close", re.IGNORECASE)


class _Caller:
    """A connection that is opened again whenever the server has closed it."""

    def __init__(self, port: int, requests: dict[str, Recorded]) -> None:
        self._port = port
        self._requests = requests
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.waits_ms: array[float] = array("d")

    async def turn(self) -> None:
        """Send, receive and delete a batch."""
        await self._call("send")
        handles = _HANDLES.findall(await self._call("receive"))
        # Others receive, too: one may get what another has sent.
        if len(handles) == BATCH:
            await self._call("delete", handles)

    async def _call(self, verb: str, handles: list[bytes] | None = None) -> bytes:
        request = self._requests[verb]
        body = request.body.encode()
        for handle in handles or []:
            body = body.replace(HANDLE.encode(), handle, 1)
        began = perf_counter()
        reader, writer = await self._connected()
        lines = [f"POST {request.path} HTTP/1.1", f"Host: 127.0.0.1:{self._port}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        assert head.startswith(b"HTTP/1.1 200 "), head
        assert length is not None, head
        answer = await reader.readexactly(int(length[1]))
        self.waits_ms.append((perf_counter() - began) * 1_000)
        if _CLOSES.search(head):
            self.close()
        return answer

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def ask(server: Server, requests: dict[str, Recorded], *, connections: int, seconds: float) -> Traffic:
    """Send the requests from this process for some time."""
    callers = [_Caller(server.port, requests) for _ in range(connections)]
    window, clocks = Window.lasting(seconds), {"server": server.cpu, "generator": own_cpu}

    async def run(caller: _Caller) -> None:
        while perf_counter() < window.until:
            await caller.turn()
        caller.close()

    def messages() -> int:
        return sum(len(caller.waits_ms) for caller in callers) * BATCH // CALLS

    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(run(caller))
        found = await traffic.measured(window, messages, clocks, {})
    waits_ms = array("d", [wait for caller in callers for wait in caller.waits_ms])
    return Traffic(found.messages, found.seconds, found.cpu, {"call": waits_ms})
