"""``python -m bench.pipeline_sink [ROWS [ROUNDS]]``: messages written from Spark per second, beside the SDK itself.

Bodies have 256 bytes; the server runs on the same machine, with its default settings: what is
answered is on the disk. Records of a topic of four partitions have a key of eight bytes and the
same value. A figure of Spark is the time of a whole `save()`, with its planning and the start of
its tasks. All sides take turns in one run, and the best round of each counts, because the machine
has other things to do; the load average is said beside them, and what a message cost the server
in CPU time, which other things change less.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from urllib.request import Request, urlopen

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.processes import Server, penstock
from penstock.connect import connect
from penstock.pipeline.spark import open_session

ROWS = 500_000
BODY_BYTES = 256
ROUNDS = 3
TARGET = 50_000
# As many tasks, and as many senders of the SDK.
TASKS = 2
_SEND = 1_000
PARTITIONS = 4
TO_A_TOPIC = "Spark, to a topic"
_KEPT = "Spark, with a manifest"


def main(rows: int = ROWS, rounds: int = ROUNDS) -> None:
    options = ("--kafka", "--kafka-port", "0")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, penstock(Path(folder), *options) as server:
        spark = open_session(master=f"local[{TASKS}]", name="bench", settings={"spark.driver.memory": "1g"})
        try:
            figures, cpu_us = _measure(spark, server, Path(folder), rows=rows, rounds=rounds)
        finally:
            spark.stop()
    peer = figures["SDK, send_many"]
    for name, figure in figures.items():
        of_server = f"{cpu_us[name]:>8.2f} µs of the server each"
        print(f"{name:<28}{figure:>12,.0f} messages/s{figure / peer:>8.2f} × SDK{of_server}")
    for name in (_KEPT, TO_A_TOPIC):
        print(f"target {TARGET:,}, {name}: {'met' if figures[name] >= TARGET else 'not met'}")
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


def _measure(
    spark: SparkSession, server: Server, folder: Path, *, rows: int, rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    url = server.url
    with connect(url) as client:
        client.create_queue("bench")
    _make_topic(url)
    frame = spark.range(0, rows, 1, TASKS).select(f.rpad(f.col("id").cast("string"), BODY_BYTES, "x").alias("data"))
    keyed = frame.select(f.substring("data", 1, 8).alias("key"), f.col("data").alias("value"))
    _write(frame.limit(TASKS), url, job="warm")
    sides: dict[str, Callable[[int], None]] = {
        "SDK, send_many": lambda _: asyncio.run(_send_all(url, rows)),
        "Spark, without a manifest": lambda turn: _write(frame, url, job=f"plain {turn}"),
        _KEPT: lambda turn: _write(frame, url, job=f"kept {turn}", manifest=str(folder / "manifest")),
        TO_A_TOPIC: lambda turn: _write_topic(keyed, url, job=f"topic {turn}", manifest=str(folder / "manifest")),
    }
    best, cpu_us = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, float("inf"))
    for turn in range(rounds):
        for name, work in sides.items():
            began, spent = perf_counter(), server.cpu()
            work(turn)
            best[name] = max(best[name], rows / (perf_counter() - began))
            cpu_us[name] = min(cpu_us[name], server.cpu().since(spent).total_s * 1e6 / rows)
            with connect(url) as client:
                client.queue("bench").purge()
    return best, cpu_us


def _make_topic(url: str) -> None:
    body = json.dumps({"topic_name": "bench", "partitions": PARTITIONS}).encode()
    with urlopen(Request(f"{url}/api/topics", body, {"content-type": "application/json"}), timeout=20) as answer:
        assert answer.status == 201


def _write_topic(frame: DataFrame, url: str, **options: str) -> None:
    frame.write.format("penstock").mode("append").options(url=url, topic="bench", **options).save()


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
