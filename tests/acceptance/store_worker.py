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

A message's body begins with its name, ``run/task/sequence``, and the rest of it
follows from the name: a reader can tell a body that nobody sent.
"""

import argparse
import asyncio
import os
import random
import time
from pathlib import Path

from penstock.core.message import Drafts
from penstock.core.settings import QueueSettings
from penstock.log.interface import LogBusy
from penstock.runtime.system import halt, system_runtime
from penstock.runtime.workers import ThreadWorkers
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import Delivery, Outcome
from tests.acceptance.writer import body_of, small

QUEUE = "work"
# The short ones lapse under load, the long ones outlive the process.
LEASE_MS = (20, 100, 60_000)
SETTINGS = QueueSettings(retention_ms=0, deliveries_max=0)
SENDERS, WORKERS = 3, 3
# A process that nobody stops ends by itself.
CALLS_MAX = 50_000


def message_of(name: str) -> bytes:
    """Return the body of the message with this name."""
    return name.encode() + b" " + body_of(name)


def name_of(body: memoryview) -> str:
    """Return the name of a message; its body must follow from it."""
    name = bytes(body).split(b" ", 1)[0].decode()
    assert bytes(body) == message_of(name), f"the body of {name} is not what was sent"
    return name


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
            except LogBusy:
                await asyncio.sleep(0.001)
                continue
            told = [f"sent {time.monotonic_ns()} {each} {name}" for each, name in zip(ids, names, strict=True)]
            tell("\n".join(told))

    async def work_all(self) -> None:
        for _ in range(CALLS_MAX):
            lease_ms = self._dice.choice(LEASE_MS)
            try:
                delivery = await self._store.lease(QUEUE, want=self._dice.choice([1, 5, 30]), lease_ms=lease_ms)
                if delivery is not None:
                    await self._work_on(delivery)
                    continue
            except LogBusy:
                pass
            await asyncio.sleep(0.001)

    async def _work_on(self, delivery: Delivery) -> None:
        at_ns = time.monotonic_ns()
        names = list(map(name_of, delivery.bodies))
        rows = zip(delivery.deliveries, delivery.ids, names, strict=True)
        tell("\n".join(f"got {at_ns} {deliveries} {each} {name}" for deliveries, each, name in rows))
        chosen = [row for row in range(len(delivery)) if self._dice.random() < 0.6]
        receipts = delivery.receipts()
        if self._dice.random() < 0.2:
            await self._store.release(QUEUE, receipts, delay_ms=self._dice.choice([0, 50]))
        elif chosen:
            tell("try-ack", *(names[row] for row in chosen))
            outcomes = await self._store.ack(QUEUE, [receipts[row] for row in chosen])
            done = [names[row] for row, outcome in zip(chosen, outcomes, strict=True) if outcome is Outcome.DONE]
            tell("ack", time.monotonic_ns(), *done)


async def use(options: argparse.Namespace) -> None:
    folder: Path = options.folder
    async with ThreadWorkers(2, halt) as workers:
        runtime = system_runtime(folder.parent, workers)
        store = await EmbeddedStore.open(runtime, folder.name, small(options.sync, segment_bytes_max=65_536))
        await store.create(QUEUE, SETTINGS)
        tell("open", time.monotonic_ns())
        async with asyncio.TaskGroup() as tasks:
            for number in range(SENDERS):
                tasks.create_task(Client(store, f"{options.run}/{number}").send_all())
            for number in range(WORKERS):
                tasks.create_task(Client(store, f"{options.run}/worker{number}").work_all())
        await store.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="store_worker")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", type=int, required=True, help="first part of each message's name")
    parser.add_argument("--sync", default="batch")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(use(_options()))
