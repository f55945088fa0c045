"""One session of Spark that runs the jobs over one history and says how long each took: the child of `bench.pipeline`.

    python -m bench.pipeline_run local[2] HISTORY SMALL WORK

HISTORY is a data folder, SMALL a little one of the same kind: every step runs over it first
and does not count, because the first run of anything in a Java machine is of the machine and
not of the step. What each step took is printed as JSON, one line for each, as soon as it is done.

    archive              HISTORY, by our data source ─▶ an archive
    archive, peer        the same rows as Parquet, by Spark's own source ─▶ Parquet, as an archive has it
    signals of a folder  HISTORY, by our data source ─▶ tables and a report
    signals              the archive, by Spark's own source ─▶ tables and a report
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipeline.archive.job import ArchiveOptions
from penstock.pipeline.archive.job import run as run_archive
from penstock.pipeline.job import Silent
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.signals.job import SignalsOptions
from penstock.pipeline.signals.job import run as run_signals
from penstock.pipeline.spark import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE, ARCHIVE_PEER = "archive", "archive, peer"
SIGNALS, SIGNALS_PEER = "signals of a folder", "signals"
STEPS = (ARCHIVE, ARCHIVE_PEER, SIGNALS, SIGNALS_PEER)


@dataclass(frozen=True, slots=True)
class Took:
    """A step, how many rows it went over, and how long that took."""

    step: str
    rows: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


def run_steps(spark: "SparkSession", history: Path, work: Path) -> Iterator[Took]:
    """Run every step over ``history``, in the empty folder ``work``, and count what each has made."""
    archive = work / "archive"
    seconds = _timed(lambda: _archive(spark, history, archive))
    rows = spark.read.parquet(str(archive / "messages")).count()
    yield Took(ARCHIVE, rows, seconds)
    yield Took(ARCHIVE_PEER, rows, _timed(lambda: _rewrite(spark, archive / "messages", work / "peer")))
    yield Took(SIGNALS, rows, _timed(lambda: _signals(spark, history, work / "of-folder")))
    yield Took(SIGNALS_PEER, rows, _timed(lambda: _signals(spark, archive, work / "of-archive")))


def _timed(work: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _archive(spark: "SparkSession", history: Path, root: Path) -> None:
    run_archive(spark, ArchiveOptions(source=HistoryLocation(where=str(history)), root=str(root)), Silent())


def _signals(spark: "SparkSession", source: Path, out: Path) -> None:
    run_signals(spark, SignalsOptions(place=HistoryLocation(where=str(source)), out=str(out)), Silent())


def _rewrite(spark: "SparkSession", messages: Path, out: Path) -> None:
    """Do what an archive is for without us: sorted within files, in a folder for each day."""
    rows = spark.read.parquet(str(messages))
    sorted_rows = rows.repartition("day").sortWithinPartitions("day", "queue", "settled_at")
    sorted_rows.write.partitionBy("day").option("compression", "zstd").parquet(str(out))


def main(master: str, history: str, small: str, work: str) -> None:
    spark = open_session(master=master, name="bench", settings={"spark.driver.memory": "4g"})
    try:
        for folder, source in (("warm", small), ("work", history)):
            made = Path(work) / folder
            made.mkdir(parents=True)
            for took in run_steps(spark, Path(source), made):
                if source == history:
                    print(json.dumps(asdict(took)), flush=True)
            shutil.rmtree(made)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
