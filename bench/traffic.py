"""Senders and consumers of a store, or of a peer, as tasks of one event loop.

    sender      send ─▶ put ─┐                ┌─▶ get ─▶ lease ─▶ ack     consumer
                             ▼                │
                      ┌──────────────────────────────┐
                      │ the queue of each send that  │   full: senders wait
                      │ not leased from yet          │   empty: consumers wait
                      └──────────────────────────────┘

So the backlog neither grows nor runs dry, and no lease comes back empty. A
message counts when its ack is durable: by then it was sent, leased and settled.

The store's tasks call it in this process; those of a server call it through a
client. What each process spent in the window is asked of its clock.
"""

import asyncio
import os
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Sequence, Sized
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from bench.peer import Window
from bench.processes import Clocks, Cpu, own_cpu
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.log.settings import LogSettings
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.store.embedded.shard_lifecycle import JOURNAL_SETTINGS
from penstock.store.embedded.store import EmbeddedStore

MESSAGE_BYTES = 256
ONLY_OURS: Clocks = {"process": own_cpu}


class WindowTooShort(Exception):
    """Not one message went all the way in it."""


class Leased(Protocol):
    @property
    def bodies(self) -> Sequence[Sized]: ...

    def receipts(self) -> Any: ...


class Queues(Protocol):
    """The verbs that are measured, of the store and of its peer."""

    async def send(self, queue: str, drafts: Drafts, /) -> object: ...

    async def lease(self, queue: str, /, *, want: int) -> Leased | None: ...

    async def ack(self, queue: str, receipts: Any, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Traffic:
    """How many messages went all the way in a window, what they cost, and how long each verb took."""

    messages: int
    seconds: float
    # Of each process that took part.
    cpu: dict[str, Cpu]
    waits_ms: dict[str, "array[float]"] = field(repr=False)

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time for each message, of all threads of all processes."""
        return sum(cpu.total_s for cpu in self.cpu.values()) / self.messages * 1e6


@dataclass(frozen=True, slots=True)
class Crowd:
    """Who calls, and with how many messages each time.

    Consumers have two verbs to a sender's one, so there are twice as many.
    """

    callers: int
    batch: int
    # For each caller; what is in the backlog at the end was sent and does not count.
    backlog_sends: int = 4

    @property
    def senders(self) -> int:
        return max(1, self.callers // 3)

    @property
    def consumers(self) -> int:
        return self.callers - self.senders

    @property
    def drafts(self) -> Drafts:
        return Drafts(bodies=[os.urandom(MESSAGE_BYTES) for _ in range(self.batch)])


@asynccontextmanager
async def opened(root: Path, settings: LogSettings = JOURNAL_SETTINGS) -> AsyncIterator[EmbeddedStore]:
    async with (
        ThreadWorkers(1, halt) as workers,
        await EmbeddedStore.open(system_runtime(root, workers), "store", settings) as store,
    ):
        yield store


async def make_queues(store: EmbeddedStore, count: int) -> list[str]:
    names = [f"queue-{number}" for number in range(count)]
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(store.create(name, QueueSettings()))
    return names


async def fill(store: EmbeddedStore, queue: str, messages: int, crowd: Crowd) -> None:
    """Send so many messages and let them lie."""
    drafts = crowd.drafts

    async def fill_share() -> None:
        for _ in range(messages // crowd.batch // crowd.callers):
            await store.send(queue, drafts)

    async with asyncio.TaskGroup() as group:
        for _ in range(crowd.callers):
            group.create_task(fill_share())


async def run(
    store: Queues,
    queues: Sequence[str],
    crowd: Crowd,
    seconds: float,
    *,
    clocks: Clocks = ONLY_OURS,
    body_length: int = MESSAGE_BYTES,
) -> Traffic:
    """Let a crowd send, lease and ack for some time. All that it sent is settled when it returns.

    ``body_length`` is what `len` says of each body that comes back.
    """
    return await _Run(store, queues, crowd, Window.lasting(seconds), body_length).traffic(clocks)


async def measured(
    window: Window, count: Callable[[], int], clocks: Clocks, waits_ms: dict[str, "array[float]"]
) -> Traffic:
    """Watch what others do in a window: how many messages are counted meanwhile, and what that costs."""
    await asyncio.sleep(window.since - perf_counter())
    began, before, spent = perf_counter(), count(), {name: clock() for name, clock in clocks.items()}
    await asyncio.sleep(window.until - perf_counter())
    seconds, messages = perf_counter() - began, count() - before
    cpu = {name: clock().since(spent[name]) for name, clock in clocks.items()}
    if not messages:
        raise WindowTooShort(f"no message was done within {seconds:.1f} s; measure for longer: --seconds")
    return Traffic(messages, seconds, cpu, waits_ms)


class _Run:
    def __init__(self, store: Queues, queues: Sequence[str], crowd: Crowd, window: Window, body_length: int) -> None:
        self._store = store
        self._crowd = crowd
        self._window = window
        self._body_length = body_length
        self._drafts = crowd.drafts
        self._next: Iterator[str] = cycle(queues)
        self._sent: asyncio.Queue[str | None] = asyncio.Queue(crowd.backlog_sends * crowd.callers)
        self._waits_ms = {verb: array("d") for verb in ("send", "lease", "ack")}
        self._messages = 0

    async def traffic(self, clocks: Clocks) -> Traffic:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._crowd.consumers):
                group.create_task(self._consume())
            group.create_task(self._send_all())
            return await measured(self._window, lambda: self._messages, clocks, self._waits_ms)

    async def _send_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._crowd.senders):
                group.create_task(self._send())
        for _ in range(self._crowd.consumers):
            await self._sent.put(None)

    async def _send(self) -> None:
        store, drafts, waits_ms, until = self._store, self._drafts, self._waits_ms["send"], self._window.until
        while (began := perf_counter()) < until:
            queue = next(self._next)
            await store.send(queue, drafts)
            waits_ms.append((perf_counter() - began) * 1_000)
            await self._sent.put(queue)

    async def _consume(self) -> None:
        store, batch, sent = self._store, self._crowd.batch, self._sent
        leases_ms, acks_ms = self._waits_ms["lease"], self._waits_ms["ack"]
        while (queue := await sent.get()) is not None:
            began = perf_counter()
            delivery = await store.lease(queue, want=batch)
            leased = perf_counter()
            assert delivery is not None
            # A consumer looks at what it was given, so a body that is only promised is paid for here.
            assert sum(map(len, delivery.bodies)) == batch * self._body_length
            await store.ack(queue, delivery.receipts())
            leases_ms.append((leased - began) * 1_000)
            acks_ms.append((perf_counter() - leased) * 1_000)
            self._messages += batch
