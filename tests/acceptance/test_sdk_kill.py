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
KILLS = 3


async def test_a_killed_server_costs_a_sender_time_and_nothing_else(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        async with penstock.connect(server.url) as client:
            await client.create_queue("work")
            queue = client.queue("work")
            ids: dict[int, str] = {}
            kills = [(2 * MESSAGES * each // (KILLS + 1), asyncio.Event()) for each in range(1, KILLS + 1)]

            def keep(numbers: Iterable[int], found: Iterable[str]) -> None:
                ids.update(zip(numbers, found, strict=True))
                for count, is_due in kills:
                    if len(ids) >= count:
                        is_due.set()

            async def send(first: int) -> None:
                for number in range(first, MESSAGES, 40):
                    keep([number], [await queue.send(b"%d" % number)])

            async def send_batches() -> None:
                for first in range(MESSAGES, 2 * MESSAGES, 100):
                    numbers = range(first, first + 100)
                    keep(numbers, await queue.send_many([b"%d" % number for number in numbers]))

            async def kill() -> None:
                for _, is_due in kills:
                    await is_due.wait()
                    server.kill()
                    await asyncio.to_thread(server.start)

            await asyncio.gather(kill(), send_batches(), *(send(first) for first in range(40)))
            found = await _receive_all(queue)
            assert sorted(found) == list(range(2 * MESSAGES))
            assert found == {number: ids[number] for number in found}


async def _receive_all(queue: Queue) -> dict[int, str]:
    found: dict[int, str] = {}
    count = 0
    while batch := await queue.receive(limit=1000):
        found.update((int(body), each) for body, each in zip(batch.bodies, batch.ids, strict=True))
        count += len(batch)
        assert all(await batch.ack())
    assert count == len(found), "a message was there twice"
    return found
