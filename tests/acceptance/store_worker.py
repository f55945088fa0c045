"""A process that uses an embedded store and tells its standard output what it was told.

    python -m tests.acceptance.store_worker FOLDER --run 3

Each line is one `write` to the pipe. What begins with `try` is told before the
store is asked, so that whatever became of it can be known from the rest; all
else is told after the store has answered, with the time of the monotonic clock:

    open AT_NS                          the store was opened
    sent AT_NS ID NAME                  this message is durable
    got AT_NS DELIVERIES ID NAME        it was leased, for so many times now
    try-ack NAME …                      these may be settled from now on
    ack AT_NS NAME …                    these are settled
    note AT_NS NOTE                     the store noted something about itself, or began a snapshot

Some messages stay for long: under leases without an end, delayed by an hour, or as
dead letters. The segments of the journal are small, and looked after all the time:
what stays is copied forward again and again.

A message's body begins with its name, ``run/task/sequence``, and the rest of it
follows from the name: a reader can tell a body that was never sent.
"""

import argparse
import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from penstock.contract.queue_settings import History, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.core.queue.queue import QueueFull
from penstock.log.interface import LogBusy
from penstock.log.settings import LogSettings, SyncPolicy
from penstock.runtime.interface import BackgroundProcess, Disk, Runtime
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import Delivery, Outcome, RedriveOrder, Release
from penstock.telemetry import LOG_SEGMENT_DROPPED, STORE_SNAPSHOT_MADE, STORE_UPKEEP_FAILED, LogEvent
from tests.acceptance.writer import body_of, small

# Of two shards, each has one of them.
QUEUE, GRAVE = "work", "work.dead"
# The short ones lapse under load, the few long ones outlive the process.
LEASE_MS = (20, 100, 100, 500, 500, 500, 500, 60_000)
DELAY_MS = (0, 50, 50, 50, 3_600_000)
# Senders are faster than workers, and a journal can be shortened only if most of it is done.
SIZE_MAX = 2_000
SETTINGS = QueueSettings(retention_ms=0, deliveries_max=4, size_max=SIZE_MAX, history=History.FULL)
GRAVE_SETTINGS = QueueSettings(retention_ms=0, deliveries_max=0)
SENDERS, WORKERS = 3, 3
UPKEEP_MS = 10
# Told as if it were a note.
CHILD_BEGUN = "child.begun"
# A process that is not stopped ends by itself.
CALLS_MAX = 50_000


def message_of(name: str) -> bytes:
    """Return the body of the message with this name."""
    return name.encode() + b" " + body_of(name)


def name_of(body: memoryview) -> str:
    """Return the name of a message; its body must follow from it."""
    name = bytes(body).split(b" ", 1)[0].decode()
    assert bytes(body) == message_of(name), f"the body of {name} is not what was sent"
    return name


def journal_settings(sync: SyncPolicy = "batch") -> LogSettings:
    return small(sync, segment_bytes_max=65_536)


async def create_queues(store: EmbeddedStore) -> None:
    await store.create(GRAVE, GRAVE_SETTINGS)
    await store.create(QUEUE, SETTINGS)


def counts_of(delivery: Delivery) -> list[int]:
    """Return how often each message was delivered, in whatever queue."""
    pasts = delivery.pasts or [None] * len(delivery)
    return [here + (past.deliveries if past else 0) for here, past in zip(delivery.deliveries, pasts, strict=True)]


def tell(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Client:
    """One of several that use the store at the same time."""

    def __init__(self, store: EmbeddedStore, name: str) -> None:
        self._store = store
        self._name = name
        self._dice = random.Random(f"client/{name}")

    async def send_all(self) -> None:
        sequence = 0
        for _ in range(CALLS_MAX):
            names = [f"{self._name}/{sequence + i}" for i in range(self._dice.choice([1, 1, 4, 20]))]
            sequence += len(names)
            tiers = bytes(self._dice.choices(range(5), k=len(names)))
            try:
                ids = await self._store.send(QUEUE, Drafts(bodies=list(map(message_of, names)), tiers=tiers))
            except (LogBusy, QueueFull):
                await asyncio.sleep(0.005)  # Real time: until there is room.
                continue
            told = [f"sent {time.monotonic_ns()} {each} {name}" for each, name in zip(ids, names, strict=True)]
            tell("\n".join(told))

    async def work_all(self) -> None:
        for _ in range(CALLS_MAX):
            queue = GRAVE if self._dice.random() < 0.1 else QUEUE
            try:
                if self._dice.random() < 0.02:
                    await self._store.redrive(GRAVE, RedriveOrder(most=5))
                # Of those that stay there are never so many that nothing else goes on.
                has_room = (await self._store.counts(QUEUE)).live < SIZE_MAX // 2
                want, lease_ms = (
                    self._dice.choice([1, 5, 30]),
                    self._dice.choice(LEASE_MS if has_room else LEASE_MS[:-1]),
                )
                delivery = await self._store.lease(queue, want=want, lease_ms=lease_ms)
                if delivery is not None:
                    await self._work_on(queue, delivery, DELAY_MS if has_room else DELAY_MS[:-1])
                    continue
            except LogBusy:
                pass
            await asyncio.sleep(0.001)  # Real time: until there is something to work on.

    async def _work_on(self, queue: str, delivery: Delivery, delays_ms: Sequence[int]) -> None:
        at_ns = time.monotonic_ns()
        names = list(map(name_of, delivery.bodies))
        rows = zip(counts_of(delivery), delivery.ids, names, strict=True)
        tell("\n".join(f"got {at_ns} {deliveries} {each} {name}" for deliveries, each, name in rows))
        chosen = [row for row in range(len(delivery)) if self._dice.random() < 0.6]
        receipts = delivery.receipts()
        if self._dice.random() < 0.2:
            await self._store.release(queue, receipts, Release(delay_ms=self._dice.choice(delays_ms)))
        elif chosen:
            tell("try-ack", *(names[row] for row in chosen))
            outcomes = await self._store.ack(queue, [receipts[row] for row in chosen])
            done = [names[row] for row, outcome in zip(chosen, outcomes, strict=True) if outcome is Outcome.DONE]
            tell("ack", time.monotonic_ns(), *done)


async def use(options: argparse.Namespace) -> None:
    folder: Path = options.folder
    async with ThreadWorkers(2, halt) as workers:
        runtime = _telling(system_runtime(folder.parent, workers))
        store = await EmbeddedStore.open(
            runtime, folder.name, journal_settings(options.sync), shards=options.shards, upkeep_ms=UPKEEP_MS
        )
        tell("open", time.monotonic_ns())
        await create_queues(store)
        async with asyncio.TaskGroup() as tasks:
            for number in range(SENDERS):
                tasks.create_task(Client(store, f"{options.run}/{number}").send_all())
            for number in range(WORKERS):
                tasks.create_task(Client(store, f"{options.run}/worker{number}").work_all())
        await store.close()


class TellingAside:
    """Satisfies `runtime.interface.BackgroundProcess`: says when a child begins."""

    def __init__(self, inner: BackgroundProcess) -> None:
        self._inner = inner

    async def run(self, work: Callable[[Disk, bytes], bytes], request: bytes) -> bytes:
        tell("note", time.monotonic_ns(), CHILD_BEGUN)
        return await self._inner.run(work, request)


def _telling(runtime: Runtime) -> Runtime:
    """Let some notes be told, by the loop: a line of another thread could come between two halves of one."""
    loop = asyncio.get_running_loop()

    def log_event(event: LogEvent, /, **fields: object) -> None:
        if event in (STORE_SNAPSHOT_MADE, LOG_SEGMENT_DROPPED, STORE_UPKEEP_FAILED):
            loop.call_soon_threadsafe(tell, "note", time.monotonic_ns(), event.name, *map(ascii, fields.values()))

    return replace(runtime, log_event=log_event, aside=TellingAside(runtime.aside))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="store_worker")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", type=int, required=True, help="first part of each message's name")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--sync", default="batch")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(use(_options()))
