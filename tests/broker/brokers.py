"""A broker on the embedded store and a simulated disk, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from penstock.broker.queues import LONG_POLLS_MAX, Queues, open_queues
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.runtime.interface import Runtime
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import Delivery, Release
from tests.conformance.stores import SMALL
from tests.simulation.world import LogEvents, Machine
from tests.waiting import elapse

T = TypeVar("T")


class Broker:
    def __init__(self, machine: Machine, runtime: Runtime, queues: Queues) -> None:
        self.log_events: LogEvents = machine.log_events
        self.runtime = runtime
        self.queues = queues

    @property
    def store(self) -> EmbeddedStore:
        assert isinstance(self.queues.placement, EmbeddedStore)
        return self.queues.placement

    def now_ms(self) -> int:
        return self.runtime.clock.now_ms()

    async def send(self, *bodies: bytes, queue: str = "orders", delay_ms: int = 0) -> list[str]:
        visible_at_ms = [self.now_ms() + delay_ms] * len(bodies) if delay_ms else None
        return list(await self.queues.send(queue, Drafts(bodies=bodies, visible_at_ms=visible_at_ms)))

    async def take(self, *, queue: str = "orders", want: int = 1, lease_ms: int = 30_000) -> Delivery:
        """Lease what must be there now."""
        delivery = await self.queues.lease(queue, want=want, lease_ms=lease_ms)
        assert delivery is not None
        return delivery

    async def bury(self, *bodies: bytes) -> list[str]:
        """Send messages to `orders` that fail until they are dead letters, and return their ids."""
        ids = list(await self.queues.send("orders", Drafts(bodies=bodies, deliveries_max=[1] * len(bodies))))
        delivery = await self.take(want=len(ids))
        await self.queues.release("orders", delivery.receipts(), Release(delay_ms=0, error="boom"))
        while (await self.store.counts("orders")).live:
            await self.store.tidy()
        return ids


@asynccontextmanager
async def open_broker(
    *, long_polls_max: int = LONG_POLLS_MAX, has_queue: bool = False, machine: Machine | None = None
) -> AsyncIterator[Broker]:
    machine = machine or Machine(seed=0)
    runtime = machine.start()
    async with (
        await EmbeddedStore.open(runtime, "queues", SMALL) as store,
        open_queues(store, runtime, long_polls_max=long_polls_max) as queues,
    ):
        if has_queue:
            await store.create("orders", QueueSettings())
        yield Broker(machine, runtime, queues)


class Poll:
    """A client that waits for messages, and may go away."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._gone: asyncio.Future[None] | None = None
        self.is_gone = False
        self.answered_at_ms: int | None = None
        self.bodies: list[bytes] = []

    def watch(self) -> "asyncio.Future[None]":
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
        return self._gone

    def go(self) -> None:
        self.is_gone = True
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def wait(self, *, queue: str = "orders", want: int = 1, wait_ms: int = 20_000) -> Delivery | None:
        queues = self._broker.queues
        delivery = await queues.lease(queue, want=want, lease_ms=30_000, wait_ms=wait_ms, presence=self)
        self.answered_at_ms = self._broker.now_ms()
        self.bodies = [] if delivery is None else [bytes(body) for body in delivery.bodies]
        return delivery


async def settle(rounds: int = 50) -> None:
    """Let everyone who can go on do so, a few milliseconds of a disk included."""
    for _ in range(rounds):
        await elapse(0.001)


def begin(tasks: asyncio.TaskGroup, verb: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return tasks.create_task(verb)
