"""Jobs through a worker: so many are put in, one worker process takes them all, and each does nothing.

Procrastinate and PgQueuer as their documentation runs them, with the concurrency and batch that were fastest here;
both with psycopg, which is the driver we have, too.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from datetime import timedelta
from time import perf_counter
from typing import Any

import procrastinate
import psycopg
from pgqueuer.db import PsycopgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode
from procrastinate.types import JSONDict

from bench.postgres.sides import BODY_BYTES

_PUT = 1_000
# Of 1, 10 and 30, tried once each on two busy cores: 86, 87 and 79 jobs/s, so it hardly matters.
PROCRASTINATE_CONCURRENCY = 10
# The fastest of 10, 100 and 1,000, tried once each on two busy cores: 406, 556 and 821 jobs/s.
PGQUEUER_BATCH = 1_000

Measure = Callable[[str, int], Coroutine[Any, Any, float]]


async def with_procrastinate(dsn: str, jobs: int) -> float:
    """Return how many jobs a second went through Procrastinate's worker."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, min_size=2, max_size=12))
    done = 0

    @app.task(name="work", queue="orders")
    async def work(body: str) -> None:
        nonlocal done
        done += len(body) > 0

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        body = os.urandom(BODY_BYTES // 2).hex()
        for _ in range(jobs // _PUT):
            rows: list[JSONDict] = [{"body": body}] * _PUT
            await work.batch_defer_async(*rows)
        began = perf_counter()
        await app.run_worker_async(
            wait=False, concurrency=PROCRASTINATE_CONCURRENCY, delete_jobs="successful", install_signal_handlers=False
        )
        seconds = perf_counter() - began
    assert done == jobs
    return jobs / seconds


async def with_pgqueuer(dsn: str, jobs: int) -> float:
    """Return how many jobs a second went through PgQueuer's worker."""
    done = 0
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        queries = Queries(PsycopgDriver(connection))
        await queries.install()
        body = os.urandom(BODY_BYTES)
        for _ in range(jobs // _PUT):
            await queries.enqueue(["work"] * _PUT, [body] * _PUT, [0] * _PUT)
        worker = QueueManager(queries)

        @worker.entrypoint("work")
        async def work(job: Job) -> None:
            nonlocal done
            done += job.payload is not None

        began = perf_counter()
        async with asyncio.timeout(600):
            await worker.run(timedelta(seconds=1), batch_size=PGQUEUER_BATCH, mode=QueueExecutionMode.drain)
        seconds = perf_counter() - began
    assert done == jobs
    return jobs / seconds


PEERS: dict[str, Measure] = {"Procrastinate": with_procrastinate, "PgQueuer": with_pgqueuer}
