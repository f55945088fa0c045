"""An archive of the classes that Spark loads, for every Java of a job that follows (`penstock pipeline prepare`).

Loading and checking its classes is half of what a short run of Spark costs: 16 seconds of processor time for a session
with three small queries, 7 with this archive (JEP 350). It is made once and lies in the environment of Python, or in
the user's cache where that cannot be written. A Java that it does not fit (another Java, other jars, another class
path) says nothing and does without it.
"""

import os
import tempfile
from pathlib import Path

from penstock.pipeline.java import SILENT, class_archives
from penstock.pipeline.job import JobFailed


def make() -> Path:
    """Make the archive again, in the first place that can be written; raises `JobFailed`."""
    beside, with_user = class_archives()
    place = beside if os.access(beside.parent, os.W_OK) else with_user
    # A process that starts meanwhile finds no half of it.
    draft = place.with_suffix(".making")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
    except OSError as error:
        raise JobFailed(f"{place} cannot be written: {error.strerror}") from None
    _run_spark(f'"-XX:ArchiveClassesAtExit={draft}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m {SILENT}')
    if not draft.exists():
        raise JobFailed("this Java makes no archive of classes: jobs go on without one, and start as before")
    draft.replace(place)
    return place


def _run_spark(options: str) -> None:
    """Do a little of what jobs do, and wait until Java has ended: it writes at its end."""
    # The options are read without Spark, too.
    from pyspark.sql import functions as f  # noqa: PLC0415

    from penstock.pipeline.spark import open_session  # noqa: PLC0415

    settings = {"spark.driver.extraJavaOptions": options, "spark.sql.shuffle.partitions": "2"}
    session = open_session(master="local[2]", name="classes", settings=settings)
    gateway = session.sparkContext._gateway
    assert gateway is not None
    with tempfile.TemporaryDirectory(prefix="classes-") as folder:
        rows = session.range(100).select((f.col("id") % 7).cast("string").alias("queue"), "id")
        rows.write.partitionBy("queue").parquet(f"{folder}/rows")
        found = session.read.parquet(f"{folder}/rows")
        sums = found.groupBy("queue").agg(f.sum("id").alias("sum"), f.percentile_approx("id", 0.5).alias("half"))
        found.join(sums, "queue").mapInArrow(
            lambda batches: batches, "queue string, id long, sum long, half long"
        ).collect()
        found.select(f.to_json(f.struct("*")).alias("value")).write.text(f"{folder}/lines")
        session.read.json(f"{folder}/lines").orderBy("id").toPandas()
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    make()
