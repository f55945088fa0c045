"""What is raced, and how one measurement is made."""

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from bench.processes import environment
from bench.race import lines
from bench.race.client import FLOW_BYTES, Job
from bench.race.sides import Running, Side

_WARM_S = 0.3
_START_S_MAX = 300.0
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A row of the table. ``roles`` are the client processes, each a role and its callers."""

    name: str
    roles: tuple[tuple[str, int], ...]
    batch: int = 1
    is_sync: bool = False
    per_second: float = 0
    # Messages that are there before, for each second of the window.
    filled_per_second: int = 0
    is_quick: bool = True
    queues: int = 1
    # Sides without this are left out.
    clients: frozenset[str] = frozenset(lines.LINES)

    @property
    def is_latency(self) -> bool:
        return self.per_second > 0


@dataclass(frozen=True, slots=True)
class Found:
    """What one measurement found."""

    rate: float
    waits_ms: list[float] = field(repr=False)
    server_cpu_us: float
    client_cpu_us: float
    # What other processes spent meanwhile, in cores.
    others: float


_ALL = frozenset(lines.LINES)
# What is not a test double: moto's server takes 50 to 150 messages a second.
_QUEUES = _ALL - {"moto"}
_SYNC = frozenset(lines.SYNC_LINES)
_BOTH = frozenset({"penstock", "redis"})

WORKLOADS = (
    Workload(name="send, one at a time", roles=(("send", 1),)),
    Workload(name="send, one at a time, sync client", roles=(("send", 1),), is_sync=True, clients=_SYNC),
    Workload(name="lease + ack, one at a time", roles=(("consume", 1),), filled_per_second=6_000, clients=_QUEUES),
    Workload(
        name="lease + ack, one at a time, sync client",
        roles=(("consume", 1),),
        is_sync=True,
        filled_per_second=6_000,
        clients=_SYNC,
    ),
    Workload(
        name="ack and lease in one round trip",
        roles=(("consume_both", 1),),
        filled_per_second=10_000,
        clients=_BOTH,
    ),
    Workload(name="both at once, batch 10", roles=(("send", 2), ("consume", 4)), batch=10),
    Workload(name="both at once, batch 100", roles=(("send", 2), ("consume", 4)), batch=100, clients=_QUEUES),
    Workload(name="both at once, batch 1000", roles=(("send", 2), ("consume", 4)), batch=1_000, clients=_QUEUES),
    Workload(name="send, 32 callers", roles=(("send", 32),), clients=_QUEUES),
    Workload(name="publish to received, 200/s", roles=(("pace", 1), ("hear", 1)), per_second=200, clients=_QUEUES),
    Workload(
        name="publish to received, 2,000/s",
        roles=(("pace", 1), ("hear", 1)),
        per_second=2_000,
        clients=_QUEUES,
        is_quick=False,
    ),
    Workload(
        name="send to 1,000 queues in turn, 32 callers",
        roles=(("send", 32),),
        queues=1_000,
        clients=_QUEUES,
        is_quick=False,
    ),
)


async def measure(side: Side, server: Running, workload: Workload, seconds: float, flow: Path) -> Found:
    """Race one side once, on a queue of its own."""
    queue = f"race{next(_numbers)}"
    if workload.filled_per_second:
        await fill(side, server, queue, max(1_000, int(workload.filled_per_second * (seconds + _WARM_S))))
    is_between = len(workload.roles) > 1 and not workload.is_latency
    jobs = [
        Job(
            client=side.client,
            url=server.url,
            queue=queue,
            role=role,
            callers=callers,
            batch=workload.batch,
            is_sync=workload.is_sync,
            per_second=workload.per_second,
            flow=str(flow) if is_between else "",
            queues=workload.queues,
        )
        for role, callers in workload.roles
    ]
    window = await run(jobs, seconds, server, flow)
    last = window.told[-1]
    # A queue that ran dry was measured until then.
    lasted_s = max(min(window.until, last["dry_at"] or window.until) - window.since, 1e-9)
    clients_s = sum(each["cpu_s"] for each in window.told)
    # What was spent to warm up is in these, too.
    messages = max(1, last["done"]) * (lasted_s + _WARM_S) / lasted_s
    return Found(
        last["done"] / lasted_s,
        last["waits_ms"],
        window.server_cpu_s / messages * 1e6,
        clients_s / messages * 1e6,
        max(0.0, window.machine_cpu_s - window.server_cpu_s - clients_s) / window.took_s,
    )


async def fill(side: Side, server: Running, queue: str, count: int, *, callers: int = 2) -> float:
    """Send messages in large batches, and return how long that took."""
    job = Job(client=side.client, url=server.url, queue=queue, role="fill", callers=callers, batch=1_000, count=count)
    began = perf_counter()
    await run([job], 0, server)
    return perf_counter() - began


@dataclass(frozen=True, slots=True)
class Window:
    """What client processes told of the time from ``since`` to ``until``, and what was spent from its beginning on."""

    told: list[dict[str, Any]]
    since: float
    until: float
    machine_cpu_s: float
    server_cpu_s: float
    took_s: float


async def run(jobs: Sequence[Job], seconds: float, server: Running, flow: Path | None = None) -> Window:
    """Run client processes over one window."""
    if flow is not None:
        _clear(flow)
    children = [await _spawned(job) for job in jobs]
    try:
        for child in children:
            said = await asyncio.wait_for(_line(child), _START_S_MAX)
            if said != b"ready\n":
                raise ClientFailed(f"a client did not start, and said {said!r}")
        machine_s, server_s, began = _machine_cpu_s(), server.cpu_s(), perf_counter()
        since = began + _WARM_S
        until = since + seconds
        for child in children:
            assert child.stdin is not None
            child.stdin.write(f"{since} {until}\n".encode())
        told = [json.loads(await _line(child)) for child in children]
        spent_s, own_s = _machine_cpu_s() - machine_s, server.cpu_s() - server_s
        return Window(told, since, until, spent_s, own_s, perf_counter() - began)
    finally:
        for child in children:
            await _ended(child)


class ClientFailed(Exception):
    """A client process ended, or is not ready."""


def _clear(flow: Path) -> None:
    flow.write_bytes(bytes(FLOW_BYTES))


async def _line(child: asyncio.subprocess.Process) -> bytes:
    assert child.stdout is not None
    line = await child.stdout.readline()
    if not line:
        raise ClientFailed("a client ended without a word")
    return line


async def _ended(child: asyncio.subprocess.Process) -> None:
    try:
        await asyncio.wait_for(child.wait(), 10)
    except TimeoutError:
        child.kill()
        await child.wait()


async def _spawned(job: Job) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.race.client",
        msgspec.json.encode(job).decode(),
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 26,
        start_new_session=True,
    )


def _machine_cpu_s() -> float:
    """What all processes of the machine have spent."""
    user, nice, system, _idle, _wait, interrupts, soft, *_ = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")
