"""What `test_clusters` has a cluster do, from the zip alone: say where Penstock is from there, read, write and archive.

    spark-submit … cluster_job.py ANSWER ADDRESS QUEUE ARCHIVE   all of it, where spark-submit says
    python cluster_job.py ANSWER ADDRESS QUEUE CONNECT ZIP       a client of Spark Connect: there are no jobs there
    python cluster_job.py ANSWER MASTER                          only where Penstock is from

The answer is a file of JSON.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import penstock
from penstock.pipeline.spark import open_session, register

COPIES = 500


def main(answer: str, *words: str) -> None:
    told: dict[str, Any] = {"driver": penstock.__file__}
    hows: dict[int, Callable[..., None]] = {1: looks, 3: submitted, 4: connected}
    hows[len(words)](told, *words)
    Path(answer).write_text(json.dumps(told))


def looks(told: dict[str, Any], master: str) -> None:
    spark = open_session(master=master, name="cluster-job", settings={"spark.ui.enabled": "false"})
    told["executors"] = places(spark)
    spark.stop()


def submitted(told: dict[str, Any], address: str, queue: str, archive: str) -> None:
    spark = open_session(master=None, name="cluster-job")
    told["executors"] = places(spark)
    told["history"] = read(spark, address)
    write(spark, address, queue)
    told["archived"] = archived(spark, address, archive)
    spark.stop()


def connected(told: dict[str, Any], address: str, queue: str, remote: str, shipped: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    spark.addArtifacts(shipped, pyfile=True)
    register(spark)
    told["executors"] = places(spark)
    told["history"] = read(spark, address)
    write(spark, address, queue)
    spark.stop()


def places(spark: SparkSession) -> list[tuple[str, str]]:
    """Ask tasks which Penstock they run with, and in which folder: each executor has its own."""

    def found(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # type: ignore[import-untyped]

        import penstock

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [penstock.__file__], "folder": [str(Path.cwd())]})

    rows = spark.range(0, 8, numPartitions=8).mapInArrow(found, "file STRING, folder STRING")
    return sorted({(row["file"], row["folder"]) for row in rows.collect()})


def read(spark: SparkSession, address: str) -> dict[str, int]:
    rows = spark.read.format("penstock").option("url", address).option("queue", "orders").load()
    return {row["outcome"]: row["count"] for row in rows.groupBy("outcome").count().collect()}


def write(spark: SparkSession, address: str, queue: str) -> None:
    rows = spark.range(0, COPIES, numPartitions=4).select(f.col("id").cast("string").alias("data"))
    writer = rows.write.format("penstock").option("url", address).option("queue", queue).option("job", queue)
    writer.mode("append").save()


def archived(spark: SparkSession, address: str, archive: str) -> str:
    from penstock.pipeline.archive.job import ArchiveOptions, run
    from penstock.pipeline.job import Silent
    from penstock.pipeline.locations import HistoryLocation

    return run(spark, ArchiveOptions(source=HistoryLocation(where=address), root=archive), Silent()).sentence


if __name__ == "__main__":
    main(*sys.argv[1:])
