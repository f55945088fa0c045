"""Servers in a thread of their own, on the loop they run on in production, and clients that speak bytes.

Deadlines that a test waits for are fractions of a second here, so that it takes no longer. Where one must not pass, the
server runs on a `HeldLoop`: a busy machine is no reason for anything then.
"""

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple, Self

import uvloop

from penstock.contract.limits import MIB
from penstock.listening.http_connection import Shared
from penstock.listening.http_exchange import ConnectionLimits
from penstock.listening.listener import BufferBudget, Listener, listening
from penstock.listening.sockets import bind
from penstock.server import Told, run
from penstock.settings import ServerSettings
from penstock.telemetry import LogEvent
from tests.waiting import wait_until

# An answer that takes longer has failed its test.
ANSWER_S = 60.0
HASTY = ConnectionLimits(sweep_s=0.02, farewell_s=30)


Loop = Callable[[], uvloop.Loop]


def hasty(**changes: Any) -> ConnectionLimits:
    return replace(HASTY, **changes)


class HeldLoop(uvloop.Loop):
    """A loop whose clock stands until a test moves it."""

    stands_at_s = 0.0

    def time(self) -> float:
        return self.stands_at_s


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A connection that sends what it is told and reads answers one by one."""

    def __init__(self, address: tuple[str, int], *, tls: ssl.SSLContext | None = None, receives: int = 0) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        plain = socket.socket(family, socket.SOCK_STREAM)
        plain.settimeout(ANSWER_S)
        if receives:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        try:
            plain.connect(address)
        except OSError:
            plain.close()
            raise
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self._reader = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        content = b"" if body is None else json.dumps(body).encode()
        host = headers.pop("host", "localhost")
        lines = [f"{method} {path} HTTP/1.1", f"host: {host}", f"content-length: {len(content)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append("content-type: application/json")
        self.send("\r\n".join([*lines, "", ""]).encode() + content)
        return self.answer()

    def answer(self, *, is_to_head: bool = False) -> Answer:
        """Read one whole answer; raises `ConnectionError` if the connection ends before."""
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the connection has ended")
        status = int(line.split()[1])
        headers = {}
        while (line := self._reader.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            headers[name] = value
        return Answer(status, headers, b"" if is_to_head else self._body(headers))

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return self._reader.read(int(headers.get("content-length", 0)))
        body = b""
        while size := int(self._reader.readline(), 16):
            body += self._reader.read(size)
            self._reader.readline()
        self._reader.readline()
        return body

    def is_closed(self) -> bool:
        """Wait until the other side says something or closes; return whether it closed."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True


class Running:
    """A server in its thread."""

    def __init__(self) -> None:
        self.address = ("", 0)
        self.url = ""
        self.is_ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stop: Callable[[], None] = lambda: None
        self.shared: Shared | None = None
        self.listener: Listener[Shared] | None = None
        self.log_events: list[tuple[LogEvent, dict[str, object]]] = []
        self.error: BaseException | None = None

    def client(self, **options: Any) -> Client:
        return Client(self.address, **options)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call something on the loop of the server and return what it returns."""
        assert self.loop is not None

        async def on_the_loop() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(on_the_loop(), self.loop).result(ANSWER_S)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Return when something holds on the loop of the server."""
        wait_until(lambda: self.call(holds), within_s=ANSWER_S)

    def pass_time(self, seconds: float, *, once: Callable[[], bool] = lambda: True) -> bool:
        """Move the clock of a `HeldLoop`, and look at all deadlines; only if something holds at that very moment."""

        def moved() -> bool:
            assert isinstance(self.loop, HeldLoop)
            assert self.shared is not None
            if not once():
                return False
            self.loop.stands_at_s += seconds
            self.shared.sweep(self.loop.time())
            return True

        return bool(self.call(moved))


@contextmanager
def in_thread(main: Callable[[Running], Awaitable[None]], loop: Loop = uvloop.new_event_loop) -> Iterator[Running]:
    """Run ``main`` until the block ends, and raise what it raised."""
    running = Running()

    async def run_main() -> None:
        running.loop = asyncio.get_running_loop()
        try:
            await main(running)
        except BaseException as error:
            running.error = error
        finally:
            running.is_ready.set()

    thread = threading.Thread(target=lambda: uvloop.run(run_main(), loop_factory=loop))
    thread.start()
    try:
        assert running.is_ready.wait(ANSWER_S)
        if running.error is not None:
            raise running.error
        yield running
    finally:
        assert running.loop is not None
        # One that could not start may be about to end, and its loop is closed then.
        with suppress(RuntimeError):
            running.loop.call_soon_threadsafe(running.stop)
        thread.join(ANSWER_S)
        assert not thread.is_alive(), "the server does not stop"
    if running.error is not None:
        raise running.error


@contextmanager
def listener(
    application: Any,
    limits: ConnectionLimits = HASTY,
    *,
    connections_max: int = 1_000,
    buffered_bytes_max: int = 256 * MIB,
    loop: Loop = uvloop.new_event_loop,
    needs_tasks: bool = True,
) -> Iterator[Running]:
    """A listener on any free port, with an application of the test."""

    async def main(running: Running) -> None:
        def log_event(event: LogEvent, /, **fields: object) -> None:
            running.log_events.append((event, fields))

        told = asyncio.Event()
        running.stop = told.set
        budget = BufferBudget(buffered_bytes_max, asyncio.get_running_loop().time)
        running.shared = Shared(application, limits, log_event, connections_max=connections_max, budget=budget)
        running.shared.needs_no_task = lambda _: not needs_tasks
        doors = bind("127.0.0.1", 0)
        async with listening(doors, running.shared, None) as running.listener:
            running.address = doors[0].getsockname()[:2]
            running.is_ready.set()
            await told.wait()

    with in_thread(main, loop) as running:
        yield running


@contextmanager
def server(settings: ServerSettings, limits: ConnectionLimits = HASTY, *, has_kafka: bool = False) -> Iterator[Running]:
    """A whole server. Kafka clients have servers of their own, in `tests/kafka`."""
    settings = replace(settings, kafka=has_kafka)

    async def main(running: Running) -> None:
        def announce(url: str) -> None:
            host, _, port = url.partition("://")[2].rpartition(":")
            running.url, running.address = url, (host.strip("[]"), int(port))
            running.is_ready.set()

        told = Told()
        running.stop = told.stop
        await run(settings, told, announce=announce, limits=limits)

    with in_thread(main) as running:
        yield running
