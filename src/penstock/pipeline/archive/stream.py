"""Batches of a history, one after the other, into an archive: Spark's micro-batches, our manifest.

Spark's checkpoint is not what makes it exactly once. It lives as long as a run, and tells
how far the batch goes that Spark hands over; where the run began, and what is
committed, is in the manifest alone. So a checkpoint that is lost, cut off or copied is
of no consequence.

A run is stopped between batches: what is being committed is brought to its end first.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.pipeline.archive.commit import Reach, commit, entry_of
from penstock.pipeline.archive.layout import CHECKPOINT, staging_path
from penstock.pipeline.archive.manifest import Entry, Offsets, text_of
from penstock.pipeline.archive.resume_position import Beginning
from penstock.pipeline.archive.staging import stage
from penstock.pipeline.failures import reason_of
from penstock.pipeline.job import JobFailed
from penstock.pipeline.storage import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

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
        # Whoever sets it is obeyed before the next batch, not only when it is looked at from outside.
        self._stopping = stopping
        self._failure: BaseException | None = None

    def follow(self, rows: "DataFrame", *, every_s: float | None, meanwhile: Callable[[], None]) -> None:
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
        # The batch that was at work when the stop came may have failed, with nobody waiting for it.
        if self._failure is not None:
            raise self._failure

    def _wait(self, query: "StreamingQuery", meanwhile: Callable[[], None]) -> None:
        from pyspark.errors import PySparkException, StreamingQueryException  # noqa: PLC0415

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

    def _stop(self, query: "StreamingQuery") -> None:
        self._stopping.set()
        # A batch that has begun is brought to its end; Spark would cut it off.
        with self._is_committing:
            pass
        query.stop()

    def _commit(self, rows: "DataFrame", spark_batch: int) -> None:
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

    def _commit_one(self, rows: "DataFrame", offsets_to: Offsets) -> None:
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


def _started(writer: "DataStreamWriter") -> "StreamingQuery":
    """Start a query; again, if Spark had no patience with its planner: nothing has been read then."""
    for _ in range(STARTS_MAX - 1):
        query = writer.start()
        while query.isActive and not query.recentProgress and query.status["message"].startswith("Initializing"):
            time.sleep(LOOK_S / 10)
        failure = query.exception()
        if failure is None or _LATE not in str(failure):
            return query
    return writer.start()


def reach_from(beginning: Beginning, *, source: str, queues: "tuple[str, ...]") -> Reach:
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
