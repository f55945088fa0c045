"""Processes that work on one queue at once, each with a connection of its own, and what they got done.

    send      batches, one after another
    consume   lease a batch, ack it, until the time is over or nothing is left
    both      send a batch, lease a batch, ack it

Each warms up first: functions are compiled and statements prepared once for a connection, and that is not what a
worker that runs for days waits for. They start together, and what they did in the time they had is counted: a message
counts when its last verb has answered. Each process is new (`spawn`), so nothing of one side is warm for the other.
All run on uvloop, as a server does.
"""

import asyncio
import gc
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from multiprocessing.managers import SyncManager
from threading import Barrier, BrokenBarrierError
from time import perf_counter, process_time

import uvloop

from bench.peer import percentile
from bench.postgres.sides import Client, Side
from tests.postgres.servers import Server

PROCESSES = 4
SEND, CONSUME, BOTH = "send", "consume", "both"
_FILL_BATCH = 2_000
# More than a driver, or the server, needs to see of a statement before it prepares it or settles on a plan.
_WARM_UPS = 8
_WARM_UP_S_MAX = 120.0
# What is left may be in the hands of another for a moment.
_EMPTY_MAX = 5


@dataclass(frozen=True, slots=True)
class Work:
    """What each process of a crowd does."""

    kind: str
    batch: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Share:
    """What one process did, and each lease of it: when it began since the start, and how long it took."""

    messages: int
    seconds: float
    # Of this process, while it worked.
    cpu_s: float
    leases: list[tuple[float, float]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Done:
    shares: Sequence[Share]
    # Of all processes of PostgreSQL meanwhile.
    server_cpu_s: float = 0.0

    @property
    def messages(self) -> int:
        return sum(share.messages for share in self.shares)

    @property
    def per_second(self) -> float:
        return sum(share.messages / share.seconds for share in self.shares if share.messages)

    @property
    def cpu_us(self) -> tuple[float, float]:
        """CPU time for each message, in microseconds: of PostgreSQL, and of the clients."""
        clients_s = sum(share.cpu_s for share in self.shares)
        return self.server_cpu_s / self.messages * 1e6, clients_s / self.messages * 1e6

    def lease_ms(self, part: float, *, since_s: float = 0, until_s: float = float("inf")) -> float:
        """A percentile of how long leases took that began in a span of the run; 0 if there were none."""
        took = [took for began, took in chain(*(share.leases for share in self.shares)) if since_s <= began < until_s]
        return percentile(took, part) * 1_000 if took else 0.0


def run(server: Server, side: Side, dsn: str, work: Work, processes: int = PROCESSES) -> Done:
    """Let a crowd work on a database of a side."""
    context = multiprocessing.get_context("spawn")
    with SyncManager(ctx=context) as manager, ProcessPoolExecutor(processes, context) as pool:
        barrier = manager.Barrier(processes + 1)
        shares = [pool.submit(_share, side, dsn, work, barrier) for _ in range(processes)]
        try:
            barrier.wait(_WARM_UP_S_MAX)
        except BrokenBarrierError:
            # The process that broke it says why.
            for share in shares:
                share.result()
            raise
        before_s = server.cpu_s()
        return Done([share.result() for share in shares], server.cpu_s() - before_s)


async def fill(side: Side, dsn: str, messages: int) -> None:
    """Send so many messages and let them lie, as fast as a few connections can."""
    left = messages

    async def send() -> None:
        nonlocal left
        async with side.opened(dsn) as client:
            while left > 0:
                count = min(left, _FILL_BATCH)
                left -= count
                await client.send(count)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(send())


def _share(side: Side, dsn: str, work: Work, barrier: Barrier) -> Share:
    try:
        return uvloop.run(_work(side, dsn, work, barrier))
    except BaseException:
        # The others would wait for it.
        barrier.abort()
        raise


async def _work(side: Side, dsn: str, work: Work, barrier: Barrier) -> Share:
    async with side.opened(dsn) as client:
        for _ in range(_WARM_UPS):
            await client.send(work.batch)
            if leased := await client.lease(work.batch):
                await client.ack(leased)
        gc.freeze()
        await asyncio.to_thread(barrier.wait, _WARM_UP_S_MAX)
        spent_s = process_time()
        share = await {SEND: _send, CONSUME: _consume, BOTH: _both}[work.kind](client, work)
        return replace(share, cpu_s=process_time() - spent_s)


async def _send(client: Client, work: Work) -> Share:
    began, messages = perf_counter(), 0
    while perf_counter() - began < work.seconds:
        await client.send(work.batch)
        messages += work.batch
    return Share(messages, perf_counter() - began, 0.0, [])


async def _consume(client: Client, work: Work) -> Share:
    began, messages, leases, empty = perf_counter(), 0, [], 0
    while (now := perf_counter()) - began < work.seconds:
        leased = await client.lease(work.batch)
        leases.append((now - began, perf_counter() - now))
        empty = 0 if leased else empty + 1
        if empty == _EMPTY_MAX:
            break
        if leased:
            await client.ack(leased)
        messages += len(leased)
    return Share(messages, perf_counter() - began, 0.0, leases)


async def _both(client: Client, work: Work) -> Share:
    began, messages, leases = perf_counter(), 0, []
    while perf_counter() - began < work.seconds:
        await client.send(work.batch)
        now = perf_counter()
        leased = await client.lease(work.batch)
        leases.append((now - began, perf_counter() - now))
        if leased:
            await client.ack(leased)
        messages += len(leased)
    return Share(messages, perf_counter() - began, 0.0, leases)
