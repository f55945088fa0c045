"""A queue in which many messages lie: what it costs to hold them, to work before them, and to start again with them."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from bench.race import lines
from bench.race.client import Job
from bench.race.sides import Running, Side
from bench.race.workloads import fill, run

_QUEUE = "backlog"
# A window for sending and receiving before the backlog.
_BATCH = 100


@dataclass(frozen=True, slots=True)
class Backlog:
    """What one side did with so many messages."""

    fill_rate: float
    # Messages sent, received and acked in a second, batch 100, before so many.
    rate: float
    memory_mb: float
    disk_mb: float
    # From the start of the process until a client has a message; None if the side cannot be started again here.
    restart_s: float | None


async def measure_backlog(side: Side, size: int, folder: Path, seconds: float) -> Backlog:
    own = folder / f"backlog-{side.client}-{size}"
    try:
        with side.started(own) as server:
            took_s = await fill(side, server, _QUEUE, size)
            flow = folder / "flow"
            jobs = [_job(side, server, role, callers, str(flow)) for role, callers in (("send", 2), ("consume", 4))]
            window = await run(jobs, seconds, server, flow)
            memory_mb, disk_mb = server.memory_mb(), server.disk_mb()
        restart_s = None
        if side.client not in ("pgmq", "moto"):
            began = perf_counter()
            with side.started(own) as server:
                async with lines.opened(side.client, server.url, [_QUEUE], callers=1, is_sync=False) as (line,):
                    bodies: list[bytes] = []
                    while not bodies:
                        bodies, _ = await line.lease(1, 5.0)
                restart_s = perf_counter() - began
        return Backlog(size / took_s, window.told[-1]["done"] / seconds, memory_mb, disk_mb, restart_s)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _job(side: Side, server: Running, role: str, callers: int, flow: str) -> Job:
    return Job(client=side.client, url=server.url, queue=_QUEUE, role=role, callers=callers, batch=_BATCH, flow=flow)
