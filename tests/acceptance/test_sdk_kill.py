"""A server killed again and again under an SDK that goes on: nothing acknowledged is lost, nothing is doubled."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

import penstock
from penstock.client import Queue
from tests.client.serving import Server

pytestmark = [pytest.mark.real_time, pytest.mark.slow]

MESSAGES = 4_000
KILLS = 2


class Progress:
    """The ids of what was sent, and the moments to kill the server at."""

    def __init__(self) -> None:
        self.ids: dict[int, str] = {}
        self.kills = [(2 * MESSAGES * kill // (KILLS + 1), asyncio.Event()) for kill in range(1, KILLS + 1)]

    def keep(self, numbers: Iterable[int], found: Iterable[str]) -> None:
        self.ids.update(zip(numbers, found, strict=True))
        for count, is_due in self.kills:
            if len(self.ids) >= count:
                is_due.set()


async def _send(queue: Queue, progress: Progress, first: int) -> None:
    for number in range(first, MESSAGES, 40):
        progress.keep([number], [await queue.send(b"%d" % number)])


async def _send_batches(queue: Queue, progress: Progress) -> None:
    for first in range(MESSAGES, 2 * MESSAGES, 100):
        numbers = range(first, first + 100)
        progress.keep(numbers, await queue.send_many([b"%d" % number for number in numbers]))


async def _kill(server: Server, progress: Progress) -> None:
    for _, is_due in progress.kills:
        await is_due.wait()
        server.kill()
        await asyncio.to_thread(server.start)


async def _receive_all(queue: Queue) -> dict[int, str]:
    found: dict[int, str] = {}
    count = 0
    while batch := await queue.receive(limit=1000):
        found.update((int(body), each) for body, each in zip(batch.bodies, batch.ids, strict=True))
        count += len(batch)
        assert all(await batch.ack())
    assert count == len(found), "a message was there twice"
    return found


async def test_a_killed_server_costs_a_sender_time_and_nothing_else(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        # It tries for as long as a server takes to start again on a busy machine, several times over.
        async with penstock.connect(server.url, timeout_s=600) as client:
            await client.create_queue("work")
            queue, progress = client.queue("work"), Progress()
            sends = [_send(queue, progress, first) for first in range(40)]
            await asyncio.gather(_kill(server, progress), _send_batches(queue, progress), *sends)
            assert await _receive_all(queue) == progress.ids
            assert sorted(progress.ids) == list(range(2 * MESSAGES))
