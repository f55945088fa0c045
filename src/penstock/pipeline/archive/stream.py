"""Batches of a history, one after the other, into an archive: Spark's micro-batches, our manifest.

A run begins where the manifest ends, if the source still has what comes next. Spark's checkpoint is not what makes it
exactly once. It lives as long as a run, and tells how far the batch goes that Spark hands over. Where the run began,
and what is committed, is in the manifest alone. So a checkpoint that is lost, cut off or copied is of no consequence.

A batch is written as Parquet files that do not count yet, and what they hold is read back: files that Spark cannot
read again are never committed. A file has the rows of one queue and one day, sorted by tier and time, so a reader
that wants one tier, or an hour of it, reads the row groups that have it.

A run is stopped between batches: what is being committed is brought to its end first.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.contract.history_columns import HISTORY, ddl
from penstock.pipeline.archive.commit import Reach, Staged, commit, entry_of
from penstock.pipeline.archive.manifest import CHECKPOINT, BrokenArchive, Entry, Offsets, staging_path, text_of
from penstock.pipeline.job import JobFailed, reason_of
from penstock.pipeline.locations import with_id
from penstock.pipeline.storage import Files


class Kept(Protocol):
    """What a source keeps of one shard: rows from an offset on, and below another."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


class Histories(Protocol):
    def has_reached(self, shard: int, offset: int) -> bool:
        """Whether there has been such an offset."""
        ...


class RowsAreGone(JobFailed):
    """The source has dropped rows that the archive does not have."""


class AnotherHistory(JobFailed):
    """The source is not the one that the archive was made from."""


@dataclass(frozen=True, slots=True)
class ResumePosition:
    # By shard.
    offsets: dict[str, int]
    # Whether rows before it are lost to the archive.
    has_gap: bool
    # Whether the source has anything to read from there on.
    has_rows: bool


def resume_position(
    last: Entry | None, kept: Mapping[int, Kept], histories: Histories, *, may_have_gaps: bool
) -> ResumePosition:
    """Return where to begin: for each shard where the last batch ended, or with the first row that is kept."""
    ended = {} if last is None else last.offsets_to
    for known in ended:
        if int(known) not in kept:
            raise AnotherHistory(f"the archive has rows of shard {known}, and the source has no such shard")
    offsets: dict[str, int] = {}
    has_gap = False
    for shard, there in kept.items():
        start = ended.get(str(shard), there.start)
        if start < there.start:
            if not may_have_gaps:
                raise RowsAreGone(_gone(shard, start, there.start))
            start, has_gap = there.start, True
        if start > there.end and not histories.has_reached(shard, start):
            raise AnotherHistory(
                f"the archive ends at offset {start} of shard {shard}, and the history of the source at {there.end}: "
                "it is another one, or it was put back to an older copy. Begin another archive"
            )
        offsets[str(shard)] = start
    return ResumePosition(offsets, has_gap, any(offsets[str(shard)] < there.end for shard, there in kept.items()))


def _gone(shard: int, start: int, first_kept: int) -> str:
    return (
        f"the archive ends at offset {start} of shard {shard}, and the source keeps its history from {first_kept} on: "
        "the rows between are gone before they were archived. To go on without them say --allow-gaps; "
        "so that it does not happen again, archive more often or let the server keep its history for longer"
    )


# The folders a file is in, from the outside in.
FOLDERS = ("queue", "day")
_SORTED = ("queue", "day", "tier", "settled_at", "shard", "offset")


def as_archived(history: DataFrame) -> DataFrame:
    """Rows of a history with `id` and `day`, those of one queue and day together and in the order of a file.

    The day is that of `settled_at`, in UTC as the session is. Spark is asked to balance the
    parts: many small days share one, and a day that is too large for one has several.
    """
    day = f.date_format("settled_at", "yyyy-MM-dd").alias("day")
    rows = with_id(history).select(*(column.name for column in HISTORY), "id", day)
    return rows.hint("rebalance", *(f.col(name) for name in FOLDERS)).sortWithinPartitions(*_SORTED)


def contents(archived: DataFrame) -> DataFrame:
    """One row for each file and shard: how many rows it has, their times and their offsets."""
    file = (f.col("_metadata.file_path").alias("path"), f.col("_metadata.file_size").alias("bytes"))
    return (
        archived.select(*file, "shard", "settled_at", "offset")
        .groupBy("path", "bytes", "shard")
        .agg(
            f.count("*").alias("rows"),
            # As numbers: a timestamp would be collected in the time zone of the driver.
            f.unix_millis(f.min("settled_at")).alias("settled_from_ms"),
            f.unix_millis(f.max("settled_at")).alias("settled_to_ms"),
            f.min("offset").alias("first_offset"),
            f.max("offset").alias("last_offset"),
        )
    )


FILE_ROWS_MAX = 2_000_000
SCHEMA = f"{ddl(HISTORY)}, `id` STRING, `day` STRING"


def stage(history: DataFrame, where: str, *, offsets_from: Offsets, offsets_to: Offsets) -> list[Staged]:
    """Write rows below ``where`` and return the files; a row outside of the offsets is an error."""
    rows = as_archived(history)
    written = rows.write.option("compression", "zstd").option("maxRecordsPerFile", FILE_ROWS_MAX)
    written.mode("overwrite").partitionBy(*FOLDERS).parquet(where)
    back = history.sparkSession.read.schema(SCHEMA).parquet(where)
    found = contents(back).collect()
    for row in found:
        _check(row, offsets_from, offsets_to)
    return [
        _staged(path, [row for row in found if row["path"] == path]) for path in sorted({row["path"] for row in found})
    ]


def _check(row: Row, offsets_from: Offsets, offsets_to: Offsets) -> None:
    shard = str(row["shard"])
    first, last = row["first_offset"], row["last_offset"]
    if not offsets_from.get(shard, 0) <= first <= last < offsets_to.get(shard, 0):
        raise BrokenArchive(
            f"shard {shard} gave rows at offsets {first} to {last}, but was asked for those from "
            f"{offsets_from.get(shard)} on and before {offsets_to.get(shard)}; nothing of this batch is archived"
        )


def _staged(path: str, rows: Sequence[Row]) -> Staged:
    return Staged(
        # Its own name and those of its folders.
        path="/".join(path.rsplit("/", len(FOLDERS) + 1)[1:]),
        bytes=rows[0]["bytes"],
        rows=sum(row["rows"] for row in rows),
        settled_from=text_of(min(row["settled_from_ms"] for row in rows)),
        settled_to=text_of(max(row["settled_to_ms"] for row in rows)),
    )


# How soon a stop is noticed.
LOOK_S = 0.5
# Spark gives the Python that plans a stream ten seconds to start, and no setting changes that. A busy machine
# may need longer; what it had loaded is then at hand, and the next start is quicker.
STARTS_MAX = 4
_LATE = "Python worker failed to connect back"


@dataclass(slots=True, kw_only=True)
class Committed:
    """What a run has come to so far."""

    last: Entry | None
    entries: list[Entry] = field(default_factory=list)


class Stream:
    """One run of a stream into an archive."""

    def __init__(
        self,
        files: Files,
        run: str,
        reach: Reach,
        committed: Committed,
        *,
        told: Callable[[Entry], None],
        stopping: threading.Event,
    ) -> None:
        self._files = files
        self._run = run
        self._reach = reach
        self._committed = committed
        # Called after each batch that is committed and finished.
        self._told = told
        self._is_committing = threading.Lock()
        # A stop holds before the next batch, not only when it is looked at from outside.
        self._stopping = stopping
        self._failure: BaseException | None = None

    def follow(self, rows: DataFrame, *, every_s: float | None, meanwhile: Callable[[], None]) -> None:
        """Commit batches until there are no more, or it is told to stop; with ``every_s`` there may always be more."""
        writer = rows.writeStream.foreachBatch(self._commit)
        writer = writer.option("checkpointLocation", self._files.where(f"{CHECKPOINT}/{self._run}"))
        if every_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(every_s * 1_000)} milliseconds")
        query = _started(writer)
        try:
            self._wait(query, meanwhile)
        finally:
            self._stop(query)
        # The batch that was at work when the stop came may have failed with no caller waiting for it.
        if self._failure is not None:
            raise self._failure

    def _wait(self, query: StreamingQuery, meanwhile: Callable[[], None]) -> None:
        try:
            while not query.awaitTermination(LOOK_S):  # type: ignore[arg-type] # parts of a second are taken too.
                meanwhile()
                if self._stopping.is_set():
                    return
        except StreamingQueryException as error:
            failure = error if self._failure is None else self._failure
            if isinstance(failure, PySparkException | OSError):
                raise JobFailed(f"the history cannot be archived: {reason_of(str(failure))}") from failure
            raise failure from error

    def _stop(self, query: StreamingQuery) -> None:
        self._stopping.set()
        # A batch that has begun is brought to its end; Spark would cut it off.
        with self._is_committing:
            pass
        query.stop()

    def _commit(self, rows: DataFrame, spark_batch: int) -> None:
        with self._is_committing:
            if self._stopping.is_set():
                # To Spark the batch is done. Its checkpoint ends with this run; the next one begins where we ended.
                return
            try:
                self._commit_one(rows, self._ends(spark_batch))
            except BaseException as error:
                # On its way through the JVM it would become a text.
                self._failure = error
                raise

    def _commit_one(self, rows: DataFrame, offsets_to: Offsets) -> None:
        last = self._committed.last
        number = 0 if last is None else last.batch + 1
        reach = replace(self._reach, offsets_to=offsets_to)
        staging = staging_path(number, self._run)
        where = self._files.where(staging)
        staged = stage(rows, where, offsets_from=reach.offsets_from, offsets_to=offsets_to)
        entry = entry_of(number, staging, reach, staged, written_at=text_of(now_ms()))
        self._committed.last = commit(self._files, last=last, entry=entry)
        self._committed.entries.append(entry)
        self._reach = replace(reach, offsets_from=offsets_to, has_gap=False)
        self._told(entry)

    def _ends(self, spark_batch: int) -> Offsets:
        """Return how far a batch goes: Spark writes it down before it hands the batch over, in the last line."""
        log = self._files.read(f"{CHECKPOINT}/{self._run}/offsets/{spark_batch}")
        found = json.loads(log.decode().strip().rpartition("\n")[2])
        return {str(shard): int(offset) for shard, offset in found.items()}


def _started(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query; again, if Spark had no patience with its planner: nothing has been read then."""
    for _ in range(STARTS_MAX - 1):
        query = writer.start()
        while query.isActive and not query.recentProgress and query.status["message"].startswith("Initializing"):
            time.sleep(LOOK_S / 10)
        failure = query.exception()
        if failure is None or _LATE not in str(failure):
            return query
    return writer.start()


def reach_from(beginning: ResumePosition, *, source: str, queues: "tuple[str, ...]") -> Reach:
    """Return what the first batch of a run is of; how far it goes is not known yet."""
    return Reach(
        source=source,
        queues=queues,
        offsets_from=beginning.offsets,
        offsets_to=beginning.offsets,
        has_gap=beginning.has_gap,
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000
