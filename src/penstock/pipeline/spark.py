"""Opens the Spark session that a job runs in: on this machine by default, unchanged on a cluster.

What is set here is what the jobs rely on: times are in UTC, also in the Parquet files they
write, and a partition folder called `queue=7` holds a text. Whatever Spark was told otherwise (`spark-submit --conf`)
stays as it was told.

Executors of a cluster are shipped a zip of what they import (`spark-submit --py-files`). It has the same bytes for
the same source, so a cluster that keeps files by their hash keeps it once.
"""

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.contract.limits import MIB
from penstock.pipeline.java import NoJava, check_java, class_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("penstock", "pyspark_penstock")
# The first instant that a zip can have.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o644 << 16

DRIVER = '''\
"""Runs `penstock pipeline` where spark-submit starts it."""

from penstock.pipeline.__main__ import main

main()
'''


def sources() -> Iterator[tuple[str, bytes]]:
    """Yield each Python file of the packages by its name in the zip, in order."""
    above = Path(penstock.__file__).parent.parent
    for package in PACKAGES:
        for path in sorted((above / package).rglob("*.py")):
            yield path.relative_to(above).as_posix(), path.read_bytes()


def write_package(target: Path) -> int:
    """Write the zip; return how many files are in it."""
    count = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in sources():
            about = zipfile.ZipInfo(name, _EPOCH)
            about.compress_type = zipfile.ZIP_DEFLATED
            about.external_attr = _READABLE
            # The same on every system.
            about.create_system = 3
            package.writestr(about, content)
            count += 1
    return count


_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    # By default Spark writes a type of its own, which has no time zone for other readers.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
}
# On one machine: no other machine may reach the driver, and a task that failed once is tried again.
_ON_ONE_MACHINE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# A Java that lives for seconds: what its better compiler would gain, it never earns back. Plans go deep, and the
# frames of the quick compiler are large.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"
# A history of half a million rows, or an archive of two million: above, the better compiler begins to pay.
SMALL_BYTES_MAX = 32 * MIB


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
        try:
            check_java()
        except NoJava as missing:
            raise NoSpark(str(missing)) from None
        master = master or "local[*]"
    builder = SparkSession.builder.appName(name)
    wanted = dict(_ALWAYS)
    given = dict(settings or {})
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            wanted |= _ON_ONE_MACHINE
            given[JAVA_OPTIONS] = _with_classes(given.get(JAVA_OPTIONS, ""))
            # Workers must use this Python: another one on the path may not have Penstock.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in {**wanted, **given}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if master is not None and not master.startswith("local"):
        _ship(session)
    register(session)
    return session


def _with_classes(options: str) -> str:
    """Let Java of this machine start from an archive of its classes, if one was made and nothing says otherwise."""
    is_said = "-XX:SharedArchiveFile" in options or "-XX:ArchiveClassesAtExit" in options
    return options if is_said else f"{options} {class_options()}".strip()


def settings_for(where: str) -> dict[str, str]:
    """Return what suits a run over one place: if that is a small folder of this machine, a Java that starts quickly."""
    folder = Path(where)
    if "://" in where or not folder.is_dir():
        return {}
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            # A server that runs may drop a file, or rename it, between two looks.
            with suppress(FileNotFoundError):
                size += Path(path, name).stat().st_size
        if size > SMALL_BYTES_MAX:
            return {}
    return {JAVA_OPTIONS: SHORT_LIVED}


def register(session: "SparkSession") -> None:
    """Make `format("penstock")` known to a session, also one of Spark Connect.

    Spark finds the data source by itself only where Penstock is installed beside it. A zip
    that is shipped with `--py-files` or `addArtifacts` comes too late for that.
    """
    from penstock.pipeline.source import PenstockSource  # noqa: PLC0415 - it needs Spark.

    with _found_by_planners(session):
        session.dataSource.register(PenstockSource)


def _ship(session: "SparkSession") -> None:
    """Give the executors of a cluster our package, unless they were given it (`--conf spark.submit.pyFiles=…`)."""
    if "penstock" in session.sparkContext.getConf().get("spark.submit.pyFiles", ""):
        return
    # Executors fetch it from here whenever one of them starts, so it stays as long as this process.
    folder = tempfile.mkdtemp(prefix="penstock-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    package = Path(folder) / "penstock.zip"
    write_package(package)
    session.sparkContext.addPyFile(str(package))


@contextmanager
def _found_by_planners(session: "SparkSession") -> Iterator[None]:
    """Let what is registered meanwhile be planned with the package of this very process.

    Spark plans in a Python of its own beside the driver. For a batch it gives that Python what
    was shipped; for a stream, in 4.3.0, it does not, so it is told by path. Executors on other machines
    have nothing at that path, and on all of them what was shipped comes first.
    """
    # A session of Connect plans elsewhere.
    environment = session.sparkContext.environment if hasattr(session, "_jsparkSession") else {}
    before = environment.get("PYTHONPATH", "")
    package = str(Path(penstock.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, before]))
    try:
        yield
    finally:
        environment["PYTHONPATH"] = before
