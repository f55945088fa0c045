"""Many processes on one queue of one database: each sends its part, and all lease and ack until nothing is left.

Told to tests and to chaos: the same story, with few messages and with many.
"""

import asyncio
import multiprocessing
from collections import Counter
from multiprocessing.synchronize import Barrier
from typing import Any

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.runtime.system import SystemClock, SystemDice
from penstock.store.interface import Outcome
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.store import PostgresStore

QUEUE = "orders"
_BATCH = 100
# The longest wait: a story that takes longer has failed.
_PATIENCE_S = 300
# Longer than any story, so that no lease lapses: what is leased twice was leased to two at once.
_LEASE_MS = 3_600_000


def leased_by_all(url: str, *, processes: int, each: int) -> Counter[bytes]:
    """Return how often each message was leased, when every process has said that nothing is left."""
    asyncio.run(_make_queue(url))
    # What all of them import is imported once, by the process that they are copies of.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    start, acked = context.Barrier(processes), context.Value("l", 0)
    # A pipe for each, since what one writes to a shared one is lost if another is killed.
    pipes = [context.Pipe(duplex=False) for _ in range(processes)]
    crew = [
        context.Process(target=_work, args=(url, number, each, start, acked, processes * each, told))
        for number, (_, told) in enumerate(pipes)
    ]
    found: Counter[bytes] = Counter()
    try:
        for member in crew:
            member.start()
        for answers, _ in pipes:
            assert answers.poll(_PATIENCE_S), "a process does not come to an end"
            found.update(answers.recv())
    finally:
        for member in crew:
            member.kill()
            member.join()
        for answers, told in pipes:
            answers.close()
            told.close()
    return found


async def left_in(url: str) -> int:
    store = await _open(url)
    try:
        return (await store.counts(QUEUE)).live
    finally:
        await store.close()


async def _open(url: str) -> PostgresStore:
    settings = PostgresSettings(url=url, connections_max=4)
    return await PostgresStore.open(settings, clock=SystemClock(), dice=SystemDice())


async def _make_queue(url: str) -> None:
    store = await _open(url)
    try:
        await store.create(QUEUE, QueueSettings())
    finally:
        await store.close()


def _work(url: str, number: int, each: int, start: Barrier, acked: Any, total: int, told: Any) -> None:
    told.send(asyncio.run(_lease_all(url, number, each, start, acked, total)))


async def _lease_all(url: str, number: int, each: int, start: Barrier, acked: Any, total: int) -> list[bytes]:
    store = await _open(url)
    await asyncio.to_thread(start.wait, _PATIENCE_S)
    leased: list[bytes] = []

    async def send() -> None:
        for first in range(0, each, _BATCH):
            bodies = [b"%d/%d" % (number, nth) for nth in range(first, min(each, first + _BATCH))]
            await store.send(QUEUE, Drafts(bodies=bodies, tiers=bytes(nth % 5 for nth in range(len(bodies)))))

    async def work() -> None:
        while acked.value < total:
            delivery = await store.lease(QUEUE, want=_BATCH, lease_ms=_LEASE_MS)
            if delivery is None:
                await asyncio.sleep(0.01)  # Real time: other processes have the rest, or its lease lapses.
                continue
            leased.extend(bytes(body) for body in delivery.bodies)
            outcomes = await store.ack(QUEUE, delivery.receipts())
            assert set(outcomes) == {Outcome.DONE}
            with acked.get_lock():
                acked.value += len(delivery)

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            tasks.create_task(work())
            tasks.create_task(work())
    finally:
        await store.close()
    return leased
