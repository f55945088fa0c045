"""One client process of a race: ``python -m bench.race.client JOB``, where the job is JSON.

It says `ready` when its connections are open, is told the window on its standard input, and in the end writes what it
did in the window as one line of JSON. All processes of a machine share the clock.
"""

import asyncio
import json
import mmap
import os
import struct
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import msgspec
import uvloop

from bench.race.lines import Line, opened

MESSAGE_BYTES = 256
_STAMP = struct.Struct("<dB")
_PLAIN, _COUNTED, _LAST = range(3)
# Of senders and consumers of one queue: how many messages may wait between them.
_BETWEEN_MAX = 100_000
FLOW_BYTES = 16


class Job(msgspec.Struct, kw_only=True):
    client: str
    url: str
    queue: str
    role: str
    callers: int = 1
    batch: int = 1
    is_sync: bool = False
    per_second: float = 0
    count: int = 0
    # Above 1, sends go to as many queues in turn.
    queues: int = 1
    # A file that senders and consumers share, to keep the backlog small; empty without.
    flow: str = ""


@dataclass
class Tally:
    done: int = 0
    waits_ms: list[float] = field(default_factory=list)
    # When nothing was left to be done before the window was over.
    dry_at: float | None = None


class Flow:
    """Two counters in a file: what was sent, and what was received."""

    def __init__(self, path: str) -> None:
        self._memory = None
        if path:
            with Path(path).open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), FLOW_BYTES)

    def add(self, which: int, count: int) -> None:
        if self._memory is not None:
            (before,) = struct.unpack_from("<q", self._memory, 8 * which)
            struct.pack_into("<q", self._memory, 8 * which, before + count)

    @property
    def between(self) -> int:
        if self._memory is None:
            return 0
        sent, received = struct.unpack("<qq", self._memory[:FLOW_BYTES])
        return int(sent - received)


class Worker:
    def __init__(self, job: Job, lines: Sequence[Line]) -> None:
        self._job = job
        self._line = lines[0]
        self._next = cycle(lines)
        self._flow = Flow(job.flow)
        self._tally = Tally()
        self._bodies = [os.urandom(MESSAGE_BYTES) for _ in range(job.batch)]

    async def warm(self) -> None:
        if self._job.role in ("send", "pace"):
            await self._line.send(self._bodies[:1])
            self._flow.add(0, 1)

    async def run(self, since: float, until: float) -> Tally:
        role: Callable[[float, float], Coroutine[Any, Any, None]] = getattr(self, f"_{self._job.role}")
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._job.callers):
                tasks.create_task(role(since, until))
        return self._tally

    async def _send(self, since: float, until: float) -> None:
        bodies, tally, flow = self._bodies, self._tally, self._flow
        most = min(_BETWEEN_MAX, 50 * len(bodies))
        while (began := perf_counter()) < until:
            if flow.between > most:
                await asyncio.sleep(0.0005)
                continue
            await next(self._next).send(bodies)
            flow.add(0, len(bodies))
            ended = perf_counter()
            if began >= since and ended <= until:
                tally.done += len(bodies)
                tally.waits_ms.append((ended - began) * 1_000)

    async def _consume(self, since: float, until: float) -> None:
        line, tally, batch, flow = self._line, self._tally, self._job.batch, self._flow
        while (began := perf_counter()) < until:
            found, receipts = await line.lease(batch, 0.2 if self._job.flow else 0.0)
            if not found:
                if not self._job.flow:
                    tally.dry_at = began
                    return
                continue
            await line.ack(receipts)
            flow.add(1, len(found))
            ended = perf_counter()
            if began >= since and ended <= until:
                tally.done += len(found)
                tally.waits_ms.append((ended - began) * 1_000)

    async def _consume_both(self, since: float, until: float) -> None:
        """Ack the last message in the request that leases the next."""
        line: Any = self._line
        found, receipts = await line.lease(1, 0.0)
        while (began := perf_counter()) < until:
            if not found:
                self._tally.dry_at = began
                return
            found, receipts = await line.ack_and_lease(receipts, 1)
            ended = perf_counter()
            if began >= since and ended <= until:
                self._tally.done += 1
                self._tally.waits_ms.append((ended - began) * 1_000)

    async def _fill(self, _since: float, _until: float) -> None:
        """Send so many messages, whatever the window."""
        share = self._job.count // self._job.callers
        for start in range(0, share, self._job.batch):
            part = self._bodies[: min(self._job.batch, share - start)]
            await self._line.send(part)
            self._tally.done += len(part)

    async def _pace(self, since: float, until: float) -> None:
        """Send at a steady pace. Each send is a task, so that a slow one does not hold back the next."""
        due = perf_counter()
        async with asyncio.TaskGroup() as tasks:
            while due < until:
                if (left := due - perf_counter()) > 0:
                    await asyncio.sleep(left)
                tasks.create_task(self._send_stamp(_COUNTED if due >= since else _PLAIN))
                due += 1 / self._job.per_second
        await self._send_stamp(_LAST)

    async def _send_stamp(self, kind: int) -> None:
        stamp = _STAMP.pack(perf_counter(), kind)
        await self._line.send([stamp + self._bodies[0][len(stamp) :]])
        self._tally.done += kind == _COUNTED

    async def _hear(self, _since: float, until: float) -> None:
        """Wait for messages, and note how long each was on its way."""
        is_last = False
        while not is_last and perf_counter() < until + 10:
            found, receipts = await self._line.lease(100, 1.0)
            now = perf_counter()
            if not found:
                continue
            stamps = [_STAMP.unpack_from(body) for body in found]
            self._tally.waits_ms += [(now - at) * 1_000 for at, kind in stamps if kind == _COUNTED]
            is_last = any(kind == _LAST for _, kind in stamps)
            await self._line.ack(receipts)


async def _work(job: Job) -> None:
    names = [job.queue] if job.queues == 1 else [f"{job.queue}_{number}" for number in range(job.queues)]
    async with opened(job.client, job.url, names, callers=job.callers, is_sync=job.is_sync) as lines:
        worker = Worker(job, lines)
        await worker.warm()
        print("ready", flush=True)
        since, until = map(float, sys.stdin.readline().split())
        began, spent = perf_counter(), process_time()
        tally = await worker.run(since, until)
        told = {
            "done": tally.done,
            "waits_ms": tally.waits_ms,
            "dry_at": tally.dry_at,
            "seconds": perf_counter() - began,
            "cpu_s": process_time() - spent,
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    uvloop.run(_work(msgspec.json.decode(sys.argv[1], type=Job)))
