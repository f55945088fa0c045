"""How fast Spark reads a topic, over HTTP and out of the data folder.

    librdkafka ──▶ a server with a topic of 4 partitions ──▶ format("penstock"), url    ─┐
                                              └──▶ stopped ──▶ path                     ─┴─▶ an aggregate, local[2]

Records have a key of 8 bytes and a value of 100. It is a program of its own, as it wants librdkafka:

    python -m bench.pipeline_topic --rows 2000000
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from penstock.pipeline.spark import open_session
from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import create, producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 3
PARTITIONS = 4
_VALUE = bytes(range(100))
_QUEUED_MAX = 500_000


def fill(servers: str, rows: int) -> None:
    create(servers, "events", PARTITIONS)
    made = producer(servers, linger_ms=50, queue_buffering_max_messages=_QUEUED_MAX)
    for number in range(rows):
        made.produce("events", _VALUE, key=b"%08d" % (number % 100_000), partition=number % PARTITIONS)
        if number % (_QUEUED_MAX // 2) == 0:
            made.flush(60)
    assert made.flush(120) == 0


def measure(spark: "SparkSession", name: str, rows: int, **options: str) -> None:
    from pyspark.sql import functions as f  # noqa: PLC0415

    for shape, columns in (("narrow", "partition,offset"), ("wide", "")):
        chosen = {**options, "columns": columns} if columns else options
        rates = []
        for _ in range(ROUNDS + 1):
            read = spark.read.format("penstock").options(topic="events", **chosen).load()
            counts = [
                f.count(f.col(column)).alias(f"counted_{column}") for column in read.columns if column != "partition"
            ]
            began = time.perf_counter()
            found = read.groupBy("partition").agg(f.count("*").alias("records"), *counts).collect()
            rates.append(rows / (time.perf_counter() - began))
            assert sum(row["records"] for row in found) == rows
        # The first round warms up.
        print(f"{name + ', ' + shape:20} {median(rates[1:]):12,.0f} rows/s   load {os.getloadavg()[0]:.1f}", flush=True)


def main(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        spark = open_session(master="local[2]", name="bench", settings={"spark.driver.memory": "1g"})
        try:
            with Broker(data) as broker:
                fill(broker.servers, rows)
                measure(spark, "HTTP", rows, url=broker.url)
                broker.stop()
            measure(spark, "folder", rows, path=str(data))
        finally:
            spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    main(parser.parse_args().rows)
