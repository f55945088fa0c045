"""Our own side: the store, with every feature on and default settings, as a server or a client in process opens it.

Batches go through `QueueStore`, one verb for each, and jobs through `penstock.Worker` with a client of the database.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

import penstock
from bench.postgres.sides import BODY_BYTES, LEASE_S, QUEUE
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.server import open_application
from penstock.settings import ServerSettings
from penstock.store.interface import Delivery, QueueStore

_PUT = 1_000
# Not tuned, unlike the peers: others were not tried.
CONCURRENCY = 100


class StoreClient:
    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self._drafts: dict[int, Drafts] = {}
        self._body = os.urandom(BODY_BYTES)

    async def send(self, count: int) -> None:
        drafts = self._drafts.get(count)
        if drafts is None:
            drafts = self._drafts[count] = Drafts(bodies=[self._body] * count)
        await self._store.send(QUEUE, drafts)

    async def lease(self, want: int) -> Delivery | tuple[()]:
        return await self._store.lease(QUEUE, want=want, lease_ms=LEASE_S * 1_000) or ()

    async def ack(self, leased: Delivery) -> None:
        await self._store.ack(QUEUE, leased.receipts())


class Penstock:
    name = "Penstock"

    async def make(self, dsn: str) -> None:
        async with open_application(ServerSettings(store=dsn, kafka=False)) as application:
            await application.placement.create(QUEUE, QueueSettings())

    @asynccontextmanager
    async def opened(self, dsn: str) -> AsyncIterator[StoreClient]:
        # Topics are in a folder, which one process alone may have.
        settings = ServerSettings(store=dsn, kafka=False, postgres_connections_max=2, postgres_auto_migrate=False)
        async with open_application(settings) as application:
            yield StoreClient(application.placement.of(QUEUE))


async def jobs(dsn: str, count: int) -> float:
    """Return how many jobs a second go through our worker."""
    done = 0
    async with penstock.connect(dsn) as client:
        await client.create_queue(QUEUE)
        body = os.urandom(BODY_BYTES)
        for _ in range(count // _PUT):
            await client.queue(QUEUE).send_many([body] * _PUT)
        worker = penstock.Worker(client)

        @worker.handler(QUEUE, concurrency=CONCURRENCY)
        async def work(message: penstock.Message) -> None:
            nonlocal done
            done += len(message.body) > 0

        began = perf_counter()
        await worker.run(until_idle=True)
        seconds = perf_counter() - began
    assert done == count
    return count / seconds


SIDE = Penstock()
