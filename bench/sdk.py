"""Our side over HTTP: a queue through the SDK, in the verbs that are measured.

What is in the way of a message is what a program has in its way: the client, its pool of connections, frames, the
server. Bodies are made into bytes, every one of them, as a program that looks at them does.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from bench.processes import Server
from penstock.client.message import Batch
from penstock.client.queue import Queue
from penstock.connect import connect
from penstock.contract.limits import REQUEST_MESSAGES_MAX
from penstock.core.queue.message import Drafts

QUEUE = "orders"
# How long a consumer of single calls waits for messages before it looks at the clock.
GLANCE_S = 0.2


class Leased(NamedTuple):
    batch: Batch

    @property
    def bodies(self) -> list[bytes]:
        return list(self.batch.bodies)

    def receipts(self) -> Batch:
        return self.batch


class SdkQueue:
    """One queue of a server. The names of queues are there for the looks only, as in the peers."""

    # What they send at the same time travels together.
    senders_max = 10_000

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def send(self, _queue: str, drafts: Drafts, /) -> None:
        await self._queue.send_many(drafts.bodies)

    async def lease(self, _queue: str, /, *, want: int, wait_s: float = 0) -> Leased | None:
        batch = await self._queue.receive(limit=want, wait_s=wait_s)
        return Leased(batch) if batch else None

    async def ack(self, _queue: str, receipts: Batch, /) -> None:
        assert all(await receipts.ack())

    async def send_one(self, body: bytes, /) -> None:
        await self._queue.send(body)

    async def consume(self) -> int:
        batch = await self._queue.receive(limit=REQUEST_MESSAGES_MAX, wait_s=GLANCE_S)
        await asyncio.gather(*[message.ack() for message in batch])
        return len(batch)


@asynccontextmanager
async def opened(server: Server) -> AsyncIterator[SdkQueue]:
    async with connect(server.url) as client:
        # Settings are the default ones: durable, and a history of facts.
        await client.create_queue(QUEUE)
        yield SdkQueue(client.queue(QUEUE))
