"""Real workers in processes of their own: told to stop, killed, and left alone by their server."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import penstock
from penstock.client import Queue
from tests.client.serving import ROOT, Server
from tests.waiting import eventually

pytestmark = [pytest.mark.real_time, pytest.mark.slow]

WORKER = """
import asyncio, logging, os, sys
from penstock.client.worker import Worker
from penstock.client.worker.attempt import STOPPING

worker = Worker(sys.argv[1], shutdown_timeout_s=float(sys.argv[3]))

def tell(*words):
    print(*words, flush=True)

class Teller(logging.Handler):
    def emit(self, record):
        if getattr(record, "event", "") == STOPPING:
            tell("stopping")

logging.basicConfig(level="INFO", handlers=[Teller()])

@worker.handler("orders", concurrency=int(sys.argv[2]))
async def work(message):
    tell("began", message.text)
    if message.text.startswith("sleep"):
        await asyncio.sleep(float(message.text.split()[1]))  # Real time: another process.
    if message.text == "wait":
        # For one byte of standard input.
        await asyncio.to_thread(os.read, 0, 1)
    tell("ended", message.text)

worker.run_sync()
tell("stopped")
"""


class WorkerProcess:
    def __init__(self, url: str, *, concurrency: int = 5, shutdown_timeout_s: float = 600) -> None:
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, url, str(concurrency), str(shutdown_timeout_s)],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    async def line(self) -> str:
        """The next thing it says; nothing once it is gone."""
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            return (await asyncio.to_thread(self.process.stdout.readline)).strip()

    async def lines(self) -> list[str]:
        """Everything it says until it is gone."""
        found = []
        while line := await self.line():
            found.append(line)
        return found

    def go_on(self, works: int) -> None:
        """Let so many works end that wait."""
        assert self.process.stdin is not None
        self.process.stdin.write("x" * works)
        self.process.stdin.flush()

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, 60)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data") as server:
        yield server


async def in_flight(queue: Queue) -> int:
    return (await queue.describe()).in_flight


async def is_held_on(queue: Queue, message_id: str, seen: dict[int, str]) -> bool:
    """Whether a lease ends later than when it was first seen; ``seen`` has that by the number of the delivery.

    A worker that cannot run for a whole timeout loses its message, and receives it again under another lease.
    """
    now = await queue.get_message(message_id)
    return now.state == "in_flight" and str(now.until) > seen.setdefault(now.delivery_count, str(now.until))


async def test_a_worker_told_to_stop_ends_its_work_and_leaves_the_rest(server: Server) -> None:
    worker = WorkerProcess(server.url, concurrency=2)
    try:
        async with penstock.connect(server.url) as client:
            await client.create_queue("orders")
            queue = client.queue("orders")
            await queue.send_many(["wait"] * 6)
            assert [await worker.line(), await worker.line()] == ["began wait"] * 2
            worker.process.send_signal(signal.SIGTERM)
            assert await worker.line() == "stopping"
            worker.go_on(2)
            assert await worker.lines() == ["ended wait"] * 2 + ["stopped"]
            assert await worker.ended() == 0
            view = await queue.describe()
            assert (view.ready, view.in_flight) == (4, 0)
    finally:
        worker.close()


async def test_a_second_signal_hurries_a_worker_and_nothing_is_lost(server: Server) -> None:
    worker = WorkerProcess(server.url)
    try:
        async with penstock.connect(server.url) as client:
            await client.create_queue("orders")
            queue = client.queue("orders")
            await queue.send("sleep 600")
            assert await worker.line() == "began sleep 600"
            worker.process.send_signal(signal.SIGINT)
            # Two signals that arrive at once are one.
            assert await worker.line() == "stopping"
            assert worker.process.poll() is None
            worker.process.send_signal(signal.SIGINT)
            assert await worker.lines() == ["stopped"]
            message = await queue.receive()
            assert message is not None
            assert (message.text, message.delivery_count) == ("sleep 600", 2)
    finally:
        worker.close()


async def test_messages_of_a_killed_worker_come_back_after_the_visibility_timeout(server: Server) -> None:
    worker = WorkerProcess(server.url)
    try:
        async with penstock.connect(server.url) as client:
            await client.create_queue("orders", visibility_timeout=4, max_deliveries=0)
            queue = client.queue("orders")
            message_id = await queue.send("sleep 600")
            assert await worker.line() == "began sleep 600"
            # It holds the message for longer than one timeout.
            await eventually(partial(is_held_on, queue, message_id, {}))
            worker.process.kill()
            await worker.ended()
            held = await queue.get_message(message_id)
            message = await queue.receive(wait_s=60)
            assert message is not None
            assert message.delivery_count == held.delivery_count + 1
    finally:
        worker.close()


async def test_a_worker_survives_the_restart_of_its_server(server: Server) -> None:
    worker = WorkerProcess(server.url)
    try:
        async with penstock.connect(server.url) as client:
            await client.create_queue("orders")
            queue = client.queue("orders")
            await queue.send("first")
            assert [await worker.line(), await worker.line()] == ["began first", "ended first"]
            await queue.send("sleep 2")
            assert await worker.line() == "began sleep 2"
            server.kill()
            server.start()
            await queue.send("second")
            said = [await worker.line() for _ in range(3)]
            assert sorted(said) == ["began second", "ended second", "ended sleep 2"]

            async def is_empty() -> bool:
                return (await queue.describe()).current_message_count == 0

            # The message that was worked on meanwhile was acked, too: its lease began again with the server.
            await eventually(is_empty)
    finally:
        worker.close()


async def test_a_worker_may_be_started_before_its_server_and_its_queue(server: Server) -> None:
    server.stop()
    worker = WorkerProcess(server.url)
    try:
        await asyncio.sleep(1)  # Real time: a process that finds no server says nothing.
        server.start()
        async with penstock.connect(server.url) as client:
            await asyncio.sleep(0.5)  # Real time: a process that finds no queue says nothing.
            await client.create_queue("orders")
            await client.queue("orders").send("first")
            assert [await worker.line(), await worker.line()] == ["began first", "ended first"]
    finally:
        worker.close()
