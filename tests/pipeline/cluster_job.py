"""What `test_clusters` has a cluster do, from the zip alone: say where Penstock is from there, read, write and archive.

    spark-submit … cluster_job.py ADDRESS QUEUE ARCHIVE ANSWER      a classic session, where spark-submit says
    python cluster_job.py ADDRESS QUEUE ARCHIVE ANSWER CONNECT ZIP  a client of Spark Connect; it does not archive

The answer is a file of JSON. Connect has no driver of ours, and the jobs need one.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import penstock

COPIES = 500


def main(address: str, queue: str, archive: str, answer: str, *remote: str) -> None:
    told: dict[str, Any] = {"driver": penstock.__file__}
    spark = connected(*remote) if remote else classic()
    try:
        told["executors"] = [list(row) for row in places(spark).distinct().collect()]
        told["history"] = read(spark, address)
        write(spark, address, queue)
        if not remote:
            told["archived"] = archived(spark, address, archive)
    finally:
        spark.stop()
    Path(answer).write_text(json.dumps(told))


def classic() -> SparkSession:
    from penstock.pipeline.sessions import open_session

    return open_session(master=None, name="cluster-job")


def connected(remote: str, shipped: str) -> SparkSession:
    from penstock.pipeline.sessions import register

    spark = SparkSession.builder.remote(remote).getOrCreate()
    spark.addArtifacts(shipped, pyfile=True)
    register(spark)
    return spark


def places(spark: SparkSession) -> DataFrame:
    """Ask tasks which Penstock they run with, and in which folder: each executor has its own."""

    def found(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # type: ignore[import-untyped]

        import penstock

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [penstock.__file__], "folder": [str(Path.cwd())]})

    return spark.range(0, 8, numPartitions=8).mapInArrow(found, "file STRING, folder STRING")


def read(spark: SparkSession, address: str) -> dict[str, int]:
    rows = spark.read.format("penstock").option("url", address).option("queue", "orders").load()
    return {row["outcome"]: row["count"] for row in rows.groupBy("outcome").count().collect()}


def write(spark: SparkSession, address: str, queue: str) -> None:
    rows = spark.range(0, COPIES, numPartitions=4).select(f.col("id").cast("string").alias("data"))
    writer = rows.write.format("penstock").option("url", address).option("queue", queue).option("job", queue)
    writer.mode("append").save()


def archived(spark: SparkSession, address: str, archive: str) -> str:
    from penstock.pipeline.jobs.archive import ArchiveOptions, run
    from penstock.pipeline.jobs.outcome import Silent
    from penstock.pipeline.places import Place

    return run(spark, ArchiveOptions(source=Place(where=address), root=archive), Silent()).sentence


if __name__ == "__main__":
    main(*sys.argv[1:])
