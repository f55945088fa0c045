"""``python -m tests.java_classes``: an archive of the classes that Spark loads, for all the JVMs of tests that follow.

Loading and checking its classes is half of what a short run of Spark costs: 16 seconds of processor
time for a session with three small queries, 7 with this archive (JEP 350). `make test` makes it once and
keeps it in the environment. A JVM that it does not fit (another Java, other jars, another class path)
says nothing and does without, and so does everybody when it is not there.
"""

import sys
import tempfile
from pathlib import Path

PLACE = Path(sys.prefix) / "spark-classes.jsa"
# A JVM of the tests lives for seconds: what its better compiler would gain, it never earns back.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"
# It would tell everybody on standard output which classes it cannot keep, or that it has no use for an archive.
_SILENT = "-Xlog:disable -Xlog:all=error:stderr"


def java_options() -> str:
    """What every JVM of the tests is told."""
    shared = f'"-XX:SharedArchiveFile={PLACE}" {_SILENT}' if PLACE.exists() else ""
    return f"{_SHORT_LIVED} {shared}".strip()


def main() -> None:
    # A process that starts meanwhile finds no half of it.
    draft = PLACE.with_suffix(".making")
    _run_spark(f"-XX:ArchiveClassesAtExit={draft} {_SHORT_LIVED} {_SILENT}")
    draft.replace(PLACE)


def _run_spark(options: str) -> None:
    """Do a little of what jobs do, and wait until the JVM has ended: it writes at its end."""
    # The options are read without Spark, too.
    from pyspark.sql import functions as f

    from penstock.pipeline.spark import open_session

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
    main()
