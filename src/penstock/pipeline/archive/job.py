"""The archive job: settled messages become Parquet files, each row exactly once. Then the server may drop them.

The job reads where the manifest ends, commits batch by batch, and ends: at what was there when it began, or,
following, when it is told to stop. `archive.commit` says where it may be cut off, and why nothing is lost or doubled
by it. A server is told to drop only what a finished batch has (`trim`), and never by a run that takes some queues
only.

The dead letters that are in queues now are one file, replaced as a whole, bodies included. Readers see the old file
or the new one, never both and never a part. One task writes it: dead letters are few, or something is wrong that no
archive can repair.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.contract.history_columns import FRAME_ROW_BITS, HISTORY, TRANSACTION_ROW_BITS
from penstock.log.recovery import LogCorrupted
from penstock.pipeline.archive.commit import recover
from penstock.pipeline.archive.lock import Lock
from penstock.pipeline.archive.manifest import (
    CHECKPOINT,
    STAGING,
    Entry,
    Named,
    Offsets,
    ms_of,
    newest_entries,
    queue_of,
    text_of,
)
from penstock.pipeline.archive.stream import (
    AnotherHistory,
    Committed,
    ResumePosition,
    Stream,
    now_ms,
    reach_from,
    resume_position,
)
from penstock.pipeline.http import ServerRefused, ServerUnreachable
from penstock.pipeline.job import JobFailed, Outcome, Progress, Table, counted, reason_of
from penstock.pipeline.locations import (
    DEAD_LETTERS,
    QUEUES,
    DatabaseRefused,
    HistoryLocation,
    client_of,
    is_archive,
    read_live,
    source_options,
    without_password,
)
from penstock.pipeline.options import BadOption, read_options
from penstock.pipeline.queue_info import described_queues
from penstock.pipeline.source.ranges import Histories, NoHistory, Range, Slice, Wanted
from penstock.pipeline.source.reader import open_histories
from penstock.pipeline.storage import Files, files_of

DEAD_LETTERS_FILE = f"{DEAD_LETTERS}/{DEAD_LETTERS}.parquet"


def dead_letter_queues(queues: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of queues that dead letters go to, of those that there are."""
    named = {each["settings"].get("dead_letter_queue") for each in queues.values()}
    return sorted(name for name in queues if name.endswith(".dead") or name in named)


def snapshot(spark: SparkSession, files: Files, place: HistoryLocation, *, names: list[str], run: str) -> int:
    """Write what is in these queues now in the place of what was written last; return how many messages it is."""
    if not names:
        files.remove(DEAD_LETTERS)
        return 0
    staging = f"{STAGING}/{DEAD_LETTERS}-{run}"
    rows = read_live(spark, replace(place, queues=names)).coalesce(1).sortWithinPartitions("queue", "key")
    rows.write.option("compression", "zstd").mode("overwrite").parquet(files.where(staging))
    (written,) = (name for name in files.names(staging) if name.endswith(".parquet") and not name.startswith("."))
    source = f"{staging}/{written}"
    files.sync([source])
    count = spark.read.parquet(files.where(source)).count()
    files.put(source=source, target=DEAD_LETTERS_FILE)
    files.sync([DEAD_LETTERS_FILE])
    files.remove(staging)
    return count


ROWS_PER_BATCH = 2_000_000
EVERY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    source: HistoryLocation
    # A folder, or a URI that Hadoop knows.
    root: str
    is_trimming: bool = False
    is_following: bool = False
    every_s: float = EVERY_S
    rows_per_batch: int = ROWS_PER_BATCH
    may_have_gaps: bool = False
    breaks_lock: bool = False
    # Whether the source is the same as ever, under another address.
    is_moved: bool = False


def run(
    spark: SparkSession, options: ArchiveOptions, progress: Progress, stopping: threading.Event | None = None
) -> Outcome:
    """Archive what is there, or go on until ``stopping`` is set."""
    check(spark, options)
    files = files_of(spark, options.root)
    _begin_folder(files, options.root)
    lock = Lock.take(files, now_ms=now_ms(), is_forced=options.breaks_lock)
    try:
        return _Run(spark, options, progress, files, lock).all(stopping or threading.Event())
    finally:
        lock.release()


def check(spark: SparkSession, options: ArchiveOptions) -> None:
    """Refuse what would lose something, before anything is done."""
    source = options.source
    if urlsplit(options.root).scheme in {"http", "https"}:
        raise JobFailed(f"{options.root} is a server; an archive is a folder, or a URI such as s3a://bucket/archive")
    if options.is_trimming and source.queues:
        raise JobFailed("--trim drops the history of all queues, so all must be archived: leave out --queue or --trim")
    if options.is_trimming and not source.is_server:
        raise JobFailed(
            f"{source.shown} is no server, and only a server can drop its history: name it, as in http://127.0.0.1:8080"
        )
    if not source.is_server and is_archive(spark, source.where):
        raise JobFailed(f"{source.where} is an archive already; name a server or its data folder")


def _begin_folder(files: Files, root: str) -> None:
    try:
        files.make_folder("")
    except OSError as error:
        raise JobFailed(f"{root} cannot be an archive: {error.strerror}. Name a folder that can be written") from None
    if files.exists("journal"):
        raise JobFailed(f"{root} is the data folder of a server; name another folder for the archive")


class _Run:
    def __init__(
        self, spark: SparkSession, options: ArchiveOptions, progress: Progress, files: Files, lock: Lock
    ) -> None:
        self._spark = spark
        self._options = options
        self._progress = progress
        self._files = files
        self._lock = lock
        self._source = _address(options.source.where)
        self._rows = 0
        self._letters: int | None = None

    def all(self, stopping: threading.Event) -> Outcome:
        self._progress.step("Looking at the archive")
        queues = sorted(self._options.source.queues)
        last = recover(self._files, source=self._source, queues=queues, written_at=text_of(now_ms()))
        self._check_same(last, queues)
        self._remember_queues()
        committed = Committed(last=last)
        start = self._beginning(last)
        if start.has_rows or self._options.is_following:
            self._progress.step("Archiving")
            self._stream(start, committed, stopping)
        self._files.remove(CHECKPOINT)
        self._trim(committed.last)
        self._look_at_the_dead()
        return outcome(committed, root=self._options.root, letters=self._letters, unknown=self._unknown_queues(last))

    def _unknown_queues(self, last: Entry | None) -> Sequence[str]:
        """Return the queues that were asked for and that the server does not have, at the first run for them."""
        if not self._options.source.is_server or last is not None:
            return ()
        described = described_queues(self._options.source)
        return [name for name in self._options.source.queues if name not in described]

    def _check_same(self, last: Entry | None, queues: Sequence[str]) -> None:
        if last is None:
            return
        if list(last.queues) != list(queues):
            kept = ", ".join(last.queues) or "all queues"
            raise JobFailed(f"{self._options.root} is an archive of {kept}: take the same, or begin another archive")
        if last.source != self._source and not self._options.is_moved:
            raise JobFailed(
                f"{self._options.root} is an archive of {last.source}, not of {self._source}. If that is the same "
                "store under another address, say --moved"
            )

    def _beginning(self, last: Entry | None) -> ResumePosition:
        """Return where to begin; what is wrong with the server or the folder is said here, not by a stream."""
        try:
            with open_histories(read_options(source_options(self._options.source))) as histories:
                start = resume_position(last, histories.kept(), histories, may_have_gaps=self._options.may_have_gaps)
                if last is not None:
                    self._check_goes_on(last, histories)
                return start
        except (
            BadOption, DatabaseRefused, NoHistory, LogCorrupted, ServerRefused, ServerUnreachable, OSError,
        ) as error:  # fmt: skip
            raise JobFailed(f"{self._options.source.shown} cannot be read: {error}") from error

    def _check_goes_on(self, last: Entry, histories: Histories) -> None:
        """Refuse a source that was begun again, or put back, and has come as far as the archive since.

        What it has right before the end of the archive is in the archive. So if any of that was settled later than
        everything in the archive, it is another history.
        """
        known = [each.settled_to for each in newest_entries(self._files) if each.settled_to is not None]
        if not known:
            return
        queues = frozenset(self._options.source.queues)
        for shard, kept in histories.kept().items():
            end = min(last.offsets_to.get(str(shard), 0), kept.end)
            found_ms = newest_before(histories, end, kept, queues)
            if found_ms is not None and found_ms > ms_of(max(known)):
                raise AnotherHistory(
                    f"the archive has all before offset {end} of shard {shard}, settled until {max(known)}, and the "
                    f"source has a row there that was settled at {text_of(found_ms)}: it is another one, or it "
                    "was put back to an older copy. Begin another archive"
                )

    def _stream(self, start: ResumePosition, committed: Committed, stopping: threading.Event) -> None:
        options = self._options
        reader = self._spark.readStream.format("penstock").options(**source_options(options.source))
        reader = reader.option("startingOffsets", json.dumps(start.offsets))
        reader = reader.option("maxRowsPerTrigger", options.rows_per_batch)
        reader = reader.option("failOnDataLoss", str(not options.may_have_gaps).lower())
        reach = reach_from(start, source=self._source, queues=tuple(sorted(options.source.queues)))
        stream = Stream(self._files, self._lock.run, reach, committed, told=self._tell, stopping=stopping)
        every_s = options.every_s if options.is_following else None
        stream.follow(reader.load(), every_s=every_s, meanwhile=lambda: self._lock.refresh(now_ms=now_ms()))

    def _tell(self, entry: Entry) -> None:
        self._trim(entry)
        self._rows += entry.rows
        lag_s = None if entry.settled_to is None else max(now_ms() - ms_of(entry.settled_to), 0) / 1_000
        self._progress.rows(self._rows, lag_s=lag_s)

    def _trim(self, last: Entry | None) -> None:
        """Let the server drop what finished batches have, which the archive keeps from now on."""
        if last is not None and self._options.is_trimming:
            trim(self._options.source, last.offsets_to)

    def _remember_queues(self) -> None:
        if not self._options.source.is_server:
            return
        old = json.loads(self._files.read(QUEUES)) if self._files.exists(QUEUES) else {}
        # A queue that is gone keeps what was known of it, as its rows do.
        known = {**old, **described_queues(self._options.source)}
        self._files.replace(QUEUES, json.dumps(known, indent=1, sort_keys=True).encode() + b"\n")

    def _look_at_the_dead(self) -> None:
        if not self._options.source.is_server:
            return
        self._progress.step("Looking at the dead letters")
        wanted = set(self._options.source.queues)
        there = dead_letter_queues(described_queues(self._options.source))
        names = [name for name in there if not wanted or name in wanted]
        try:
            self._letters = snapshot(self._spark, self._files, self._options.source, names=names, run=self._lock.run)
        except PySparkException as error:
            raise JobFailed(
                f"the history is archived, but the dead letters cannot be read: {reason_of(str(error))}"
            ) from error
        self._remember_queues()


def newest_before(histories: Histories, end: int, kept: Range, queues: frozenset[str]) -> int | None:
    """Return when the newest row of the last frame, or transaction, before an offset was settled; None if gone."""
    wanted = Wanted(tuple(column for column in HISTORY if column.name == "settled_at"), queues, None, None)
    for bits in (FRAME_ROW_BITS, TRANSACTION_ROW_BITS):
        rows = Range(kept.shard, max(end - (1 << bits), kept.start), end)
        batches = histories.read(Slice(rows, goes_on=True), wanted) if rows.start < end else ()
        times = [max(batch.column("settled_at").to_pylist()) for batch in batches if batch.num_rows]
        if times:
            # As the manifest has it, whatever the source knows beyond.
            return int((max(times) - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1))
    return None


def trim(source: HistoryLocation, offsets: Offsets) -> None:
    """Let a server drop its history before some offsets, in whole segments."""
    with client_of(source) as client:
        for shard, before in sorted(offsets.items()):
            client.post("/api/history/trim", {"shard": int(shard), "before": before})


def outcome(committed: Committed, *, root: str, letters: int | None, unknown: Sequence[str] = ()) -> Outcome:
    """Return what a run came to: a row for each queue that got files."""
    entries = committed.entries
    files = [each for entry in entries for each in entry.files]
    by_queue: dict[str, list[Named]] = {}
    for each in files:
        by_queue.setdefault(queue_of(each.path), []).append(each)
    rows = sum(entry.rows for entry in entries)
    if rows:
        sentence = f"Archived {counted(rows, 'row')} in {counted(len(entries), 'batch', 'batches')}."
    else:
        sentence = "Nothing new: the archive has all that was settled."
        if unknown:
            sentence += f" The server has no queue called {', '.join(unknown)}."
    figures: dict[str, int | float | str] = {
        "rows": rows,
        "batches": len(entries),
        "files": len(files),
        "bytes": sum(each.bytes for each in files),
    }
    if letters is not None:
        figures["dead_letters"] = letters
    columns = ("queue", "rows", "files", "bytes", "from", "to")
    table = Table("Archived", columns, [_line(name, by_queue[name]) for name in sorted(by_queue)])
    return Outcome(sentence=sentence, tables=[table] if rows else [], written=[root] if rows else [], figures=figures)


def _line(queue: str, files: Sequence[Named]) -> tuple[str, int, int, int, str, str]:
    return (
        queue,
        sum(each.rows for each in files),
        len(files),
        sum(each.bytes for each in files),
        min(each.settled_from for each in files),
        max(each.settled_to for each in files),
    )


def _address(where: str) -> str:
    """Return a source as the manifest names it: the same from every folder, and without a password in its URL."""
    said = urlsplit(without_password(where))
    if not said.scheme:
        return str(Path(where).absolute())
    return said._replace(netloc=said.netloc.rpartition("@")[2]).geturl().rstrip("/")
