"""Opens the Spark session that a job runs in: on this machine by default, unchanged on a cluster.

What is set here is what the jobs rely on: times are in UTC, also in the Parquet files they
write, and a partition folder called `queue=7` holds a text. Whatever Spark was told otherwise (`spark-submit --conf`)
stays as it was told.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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
    _check_java()
    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = "local[*]"
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - it may not be installed.
    except ImportError:
        raise NoSpark("Spark is not installed. Install it with: pip install 'penstock[spark]'") from None
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
    return builder.getOrCreate()


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    if shutil.which(java) is None:
        raise NoSpark(
            "Spark needs Java 17 or newer, and there is no `java` here. "
            "On Debian: apt-get install openjdk-17-jre-headless; or set JAVA_HOME."
        )
