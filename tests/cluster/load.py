"""Senders and receivers of three servers, and the history of what they saw."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import penstock
from penstock.client import PenstockError, StaleReceipt
from tests.cluster.checker import History, faults
from tests.cluster.site import Site
from tests.waiting import eventually

PLAIN, ORDERED = "plain", "ordered"
# Of a receiver that was killed with its server, messages come back soon.
_LEASE_S = 3.0
_PATIENCE_S = 120.0
# So many acknowledged sends after what happened prove that work goes on.
_SENDS = 20


@dataclass
class Load:
    history: History = field(default_factory=History)
    # When calls were acknowledged, for the gaps between them.
    answered_s: list[float] = field(default_factory=list)
    # Of calls whose clients gave up.
    errors: list[str] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def longest_gap_s(self, from_s: float) -> float:
        """The longest time without an acknowledged send, from a moment on."""
        times = [from_s, *(each for each in self.answered_s if each > from_s)]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    async def goes_on(self) -> float:
        """Return the longest time without an acknowledged send from now on, once there were some more."""
        from_s = time.monotonic()
        await eventually(lambda: sum(each > from_s for each in self.answered_s) >= _SENDS, within_s=_PATIENCE_S)
        return self.longest_gap_s(from_s)


@asynccontextmanager
async def under_load(site: Site, *, senders: int = 3, receivers: int = 3) -> AsyncIterator[Load]:
    """Send and receive for as long as this lasts; then receive what is left, and look for faults."""
    load = Load()
    async with penstock.connect(site.url, timeout_s=_PATIENCE_S) as client:
        for queue, is_fifo in ((PLAIN, False), (ORDERED, True)):
            await client.create_queue(queue, visibility_timeout=_LEASE_S, max_deliveries=0, fifo=is_fifo)
    async with asyncio.TaskGroup() as tasks:
        sending = [tasks.create_task(_send(site, load, f"s{nth}")) for nth in range(senders)]
        receiving = [
            tasks.create_task(_receive(site, load, queue)) for queue in (PLAIN, ORDERED) for _ in range(receivers)
        ]
        try:
            yield load
        finally:
            load.over.set()
            await asyncio.wait([*sending, *receiving])
    assert faults(load.history) == []


async def _send(site: Site, load: Load, name: str) -> None:
    """Send one message after the other, in turn to both queues, each with a client of its own as programs have."""
    number = 0
    async with penstock.connect(site.url, timeout_s=_PATIENCE_S) as client:
        while not load.over.is_set():
            number += 1
            for queue, group in ((PLAIN, None), (ORDERED, name)):
                body = f"{queue}-{name}-{number}".encode()
                is_ok = True
                try:
                    await client.queue(queue).send(body, group=group)
                    load.answered_s.append(time.monotonic())
                except PenstockError as error:
                    is_ok = False
                    load.errors.append(f"send {body!r}: {error!r}")
                load.history.sent(body, is_ok=is_ok, group=group or "", number=number)


async def _receive(site: Site, load: Load, name: str) -> None:
    """Receive and ack, until it is over and nothing is left."""
    async with penstock.connect(site.url, timeout_s=_PATIENCE_S) as client:
        queue = client.queue(name)
        while True:
            began_s, was_over = time.monotonic(), load.over.is_set()
            try:
                batch = await queue.receive(limit=10, wait_s=2 * _LEASE_S if was_over else 1.0)
            except PenstockError as error:
                load.errors.append(f"receive: {error!r}")
                if was_over:
                    # It was tried for as long as anybody has patience.
                    return
                continue
            if was_over and not batch:
                return
            await _work(load, batch, began_s)


async def _work(load: Load, batch: penstock.Batch, began_s: float) -> None:
    for message in batch:
        load.history.received(message.body, message.id, began_s)
    for message in batch:
        try:
            await message.ack()
        except StaleReceipt:
            continue
        except PenstockError as error:
            load.errors.append(f"ack: {error!r}")
        else:
            load.history.acked(message.body, time.monotonic())
