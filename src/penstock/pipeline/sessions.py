"""Opens the Spark session that a job runs in: on this machine by default, unchanged on a cluster.

What is set here is what the jobs rely on: times are in UTC, also in the Parquet files they
write, and a partition folder called `queue=7` holds a text. Whatever Spark was told otherwise (`spark-submit --conf`)
stays as it was told.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.pipeline.java import NoJava, check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    # By default Spark writes a kind of its own, which says nothing of a time zone to other readers.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
}
# On one machine: nobody else is to reach the driver, and a task that failed once is tried again.
_ON_ONE_MACHINE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


class NoSpark(Exception):
    """Spark cannot be started here; the message says what is missing."""


def open_session(*, master: str | None, name: str, settings: Mapping[str, str] | None = None) -> "SparkSession":
    """Return a session: on ``master``; without one, where `spark-submit` says, or else on all cores of this machine."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - it may not be installed.
    except ImportError:
        raise NoSpark("Spark is not installed. Install it with: pip install 'penstock[spark]'") from None
    # Under spark-submit there is a Java that runs already, and it chose where.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        _check_java()
        master = master or "local[*]"
    builder = SparkSession.builder.appName(name)
    wanted = dict(_ALWAYS)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            wanted |= _ON_ONE_MACHINE
            # Workers must be of this very Python: another one on the path may know nothing of Penstock.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in {**wanted, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    register(session)
    return session


def register(session: "SparkSession") -> None:
    """Make `format("penstock")` known to a session, also one of Spark Connect.

    Spark finds the data source by itself only where Penstock is installed beside it. A zip
    that is shipped with `--py-files` or `addArtifacts` comes too late for that.
    """
    from penstock.pipeline.source import PenstockSource  # noqa: PLC0415 - it needs Spark.

    if hasattr(session, "_jsparkSession"):
        _let_streams_plan(session)
    session.dataSource.register(PenstockSource)


def _let_streams_plan(session: "SparkSession") -> None:
    """Tell the Python that plans a stream where our package is.

    Spark plans in a process of its own beside the driver. For a batch it gives that process what
    was shipped; for a stream, in 4.3.0, it does not. Executors have another folder there or
    none, and find what was shipped.
    """
    environment = session.sparkContext.environment
    package = str(Path(penstock.__file__).parents[1])
    others = environment.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join([package, *(path for path in others if path not in {"", package})])


def _check_java() -> None:
    try:
        check_java()
    except NoJava as missing:
        raise NoSpark(str(missing)) from None
