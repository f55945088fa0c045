"""A queue in this process, and a worker for it, so that a test reads as a story. Its time is steady."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import penstock
from penstock.client import Client
from penstock.client.queue import Queue
from penstock.client.worker import ConsumerStats, Worker
from tests.waiting import PATIENCE_S
from tests.worker.steady import SteadyClock, steady_time


class Stage:
    def __init__(self, client: Client, clock: SteadyClock) -> None:
        self.client = client
        # What all of it goes by.
        self.clock = clock
        self.worker = Worker(client, shutdown_timeout_s=10)
        self.queue: Queue = client.queue("orders")

    def stats(self) -> ConsumerStats:
        return self.worker.stats().get("orders", ConsumerStats())

    async def bodies(self, queue: str = "orders") -> list[str]:
        """Receive and ack everything that is there now."""
        found: list[str] = []
        while batch := await self.client.queue(queue).receive(limit=100):
            found += [message.text for message in batch]
            await batch.ack()
        return found

    async def count(self) -> int:
        return (await self.queue.describe()).current_message_count

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have the worker run for as long as the block does."""
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(self.worker.run())
            try:
                yield
            finally:
                self.worker.stop()
                await asyncio.wait([run], timeout=PATIENCE_S)


@asynccontextmanager
async def staged(**settings: Any) -> AsyncIterator[Stage]:
    with steady_time() as clock:
        async with penstock.connect("memory:") as client:
            await client.create_queue("orders", **settings)
            yield Stage(client, clock)
