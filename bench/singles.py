"""Tasks that send one message at a time, and consumers that ack one at a time.

    sender      send ─▶ send ─▶ …               each waits for its own answer
    consumer    receive many ─▶ ack each        each ack is a call of its own

Whether such calls travel one by one or together is the business of the client. When too many messages wait to be
received, senders wait too. Without consumers a message counts when it is sent; otherwise when it is acked.
"""

import asyncio
import os
from array import array
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from bench import traffic
from bench.peer import Window
from bench.processes import Clocks
from bench.traffic import MESSAGE_BYTES, Traffic

WAITING_MAX = 5_000


class SingleCalls(Protocol):
    """What is measured, of the server and of its peer."""

    # More tasks than these would only wait for one another.
    senders_max: int

    async def send_one(self, body: bytes, /) -> object: ...

    async def consume(self) -> int:
        """Receive what there is, ack each by a call of its own, and return how many; waits a little for the first."""
        ...


@dataclass(frozen=True, slots=True)
class Soloists:
    """Who calls."""

    senders: int
    consumers: int = 0


async def run(calls: SingleCalls, soloists: Soloists, seconds: float, clocks: Clocks) -> Traffic:
    run = _Run(calls, soloists)
    await run.warm()
    return await run.traffic(Window.lasting(seconds), clocks)


class _Run:
    def __init__(self, calls: SingleCalls, soloists: Soloists) -> None:
        self._calls = calls
        self._senders = min(soloists.senders, calls.senders_max)
        self._consumers = soloists.consumers
        self._body = os.urandom(MESSAGE_BYTES)
        self._waits_ms: array[float] = array("d")
        self._sent = 0
        self._acked = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def warm(self) -> None:
        """Have every connection opened, which can take longer than what is measured, and something to receive."""
        await asyncio.gather(*[self._calls.send_one(self._body) for _ in range(self._senders)])
        self._sent = self._senders
        if self._consumers:
            self._acked = await self._calls.consume()

    async def traffic(self, window: Window, clocks: Clocks) -> Traffic:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._senders):
                group.create_task(self._send(window.until))
            for _ in range(self._consumers):
                group.create_task(self._consume(window.until))
            return await traffic.measured(window, self._count, clocks, {"send": self._waits_ms})

    def _count(self) -> int:
        return self._acked if self._consumers else self._sent

    async def _send(self, until: float) -> None:
        send_one, body, waits_ms = self._calls.send_one, self._body, self._waits_ms
        while (began := perf_counter()) < until:
            if self._consumers and self._sent - self._acked >= WAITING_MAX:
                self._has_room.clear()
                await self._has_room.wait()
                continue
            await send_one(body)
            waits_ms.append((perf_counter() - began) * 1_000)
            self._sent += 1

    async def _consume(self, until: float) -> None:
        while perf_counter() < until:
            # Not in one line: `+=` would add to what was there before the wait.
            acked = await self._calls.consume()
            self._acked += acked
            if self._sent - self._acked < WAITING_MAX:
                self._has_room.set()
        # No consumer is left, so no send may wait for one.
        self._has_room.set()
