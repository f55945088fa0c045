"""``python -m bench.pipeline_sink [ROWS [ROUNDS]]``: messages written from Spark per second, beside the SDK itself.

Bodies have 256 bytes; the server runs on the same machine, with its default settings: what is
answered is on the disk. A figure of Spark is the time of a whole `save()`, with its planning
and the start of its tasks. Both sides take turns in one run, and the best round of each
counts, because the machine has other things to do; the load average is said beside them.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.processes import penstock
from penstock.connect import connect
from penstock.pipeline.sessions import open_session

ROWS = 500_000
BODY_BYTES = 256
ROUNDS = 3
TARGET = 50_000
# As many tasks, and as many senders of the SDK.
TASKS = 2
_SEND = 1_000


def main(rows: int = ROWS, rounds: int = ROUNDS) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, penstock(Path(folder)) as server:
        spark = open_session(master=f"local[{TASKS}]", name="bench", settings={"spark.driver.memory": "1g"})
        try:
            figures = _measure(spark, server.url, Path(folder), rows=rows, rounds=rounds)
        finally:
            spark.stop()
    peer = figures["SDK, send_many"]
    for name, figure in figures.items():
        print(f"{name:<28}{figure:>12,.0f} messages/s{figure / peer:>8.2f} × SDK")
    verdict = "met" if figures["Spark, with a manifest"] >= TARGET else "not met"
    print(
        f"target {TARGET:,} with a manifest: {verdict}; load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
    )


def _measure(spark: SparkSession, url: str, folder: Path, *, rows: int, rounds: int) -> dict[str, float]:
    with connect(url) as client:
        client.create_queue("bench")
    frame = spark.range(0, rows, 1, TASKS).select(f.rpad(f.col("id").cast("string"), BODY_BYTES, "x").alias("data"))
    _write(frame.limit(TASKS), url, job="warm")
    sides: dict[str, Callable[[int], None]] = {
        "SDK, send_many": lambda _: asyncio.run(_send_all(url, rows)),
        "Spark, without a manifest": lambda turn: _write(frame, url, job=f"plain {turn}"),
        "Spark, with a manifest": lambda turn: _write(
            frame, url, job=f"kept {turn}", manifest=str(folder / "manifest")
        ),
    }
    best = dict.fromkeys(sides, 0.0)
    for turn in range(rounds):
        for name, work in sides.items():
            began = perf_counter()
            work(turn)
            best[name] = max(best[name], rows / (perf_counter() - began))
            with connect(url) as client:
                client.queue("bench").purge()
    return best


def _write(frame: DataFrame, url: str, **options: str) -> None:
    frame.write.format("penstock").mode("append").options(url=url, queue="bench", **options).save()


async def _send_all(url: str, rows: int) -> None:
    body = b"x" * BODY_BYTES

    async def send(count: int) -> None:
        for _ in range(0, count, _SEND):
            await queue.send_many([body] * _SEND)

    async with connect(url) as client:
        queue = client.queue("bench")
        async with asyncio.TaskGroup() as tasks:
            for _ in range(TASKS):
                tasks.create_task(send(rows // TASKS))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
