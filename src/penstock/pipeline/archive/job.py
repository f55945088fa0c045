"""The archive job: settled messages become a Delta table, each row exactly once. Then the server may drop them.

    positions of the table ──▶ slices ──▶ tasks write files ──▶ one commit: files and new positions ──▶ trim

The job goes round like this until it has what was there when it began, or, following, until it is told to stop. It may
be cut off anywhere: before the commit nothing is named, and the next run begins at the same positions again. `tables`
says why two archivers cannot both commit. A server is told to drop only what a durable commit has (`trim`), and never
by a run that takes some queues only.

The dead letters that are in queues now are a table of their own, replaced as a whole by each run, bodies included.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.log.recovery import LogCorrupted
from penstock.pipeline.archive.files import (
    ARCHIVED,
    DEAD_LETTERS_SCHEMA,
    QueueRows,
    Wrote,
    queues_together,
    remove_files,
    write_live,
    write_slice,
)
from penstock.pipeline.archive.position import (
    SETTLED_UNTIL,
    Batch,
    check_goes_on,
    next_batch,
    now_ms,
    position_name,
    positions_of,
)
from penstock.pipeline.http import ServerRefused, ServerUnreachable
from penstock.pipeline.job import JobFailed, Outcome, Progress, counted, reason_of
from penstock.pipeline.job import Table as Shown
from penstock.pipeline.locations import (
    DEAD_LETTERS,
    MESSAGES,
    QUEUES,
    DatabaseRefused,
    HistoryLocation,
    client_of,
    is_archive,
    source_options,
    text_of,
    without_password,
)
from penstock.pipeline.options import BadOption, ReadOptions, read_options
from penstock.pipeline.queue_info import described_queues
from penstock.pipeline.source.ranges import NoHistory
from penstock.pipeline.source.reader import open_histories
from penstock.pipeline.storage import open_folder
from penstock.pipeline.tables import DAY, AnotherWriter, DataFile, Table, location_of, sync, uri_for_tasks

ROWS_PER_BATCH = 2_000_000
ROWS_PER_TASK_MIN, ROWS_PER_TASK_MAX = 50_000, 500_000
EVERY_S = 60.0
# Half of what vacuum keeps of files that no commit names yet: a machine may sleep between writing and naming them.
BATCH_MS_MAX = 12 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    source: HistoryLocation
    # A folder, or a URI such as s3://bucket/archive.
    root: str
    is_trimming: bool = False
    is_following: bool = False
    every_s: float = EVERY_S
    rows_per_batch: int = ROWS_PER_BATCH
    may_have_gaps: bool = False
    # Whether the source is the same as ever, under another address.
    is_moved: bool = False


def run(
    spark: SparkSession, options: ArchiveOptions, progress: Progress, stopping: threading.Event | None = None
) -> Outcome:
    """Archive what is there, or go on until ``stopping`` is set."""
    check(options)
    _begin_folder(options.root)
    return _Run(spark, options, progress).all(stopping or threading.Event())


def check(options: ArchiveOptions) -> None:
    """Refuse what would lose something, before anything is done."""
    source = options.source
    if urlsplit(options.root).scheme in {"http", "https"}:
        raise JobFailed(f"{options.root} is a server; an archive is a folder, or a URI such as s3://bucket/archive")
    if options.is_trimming and source.queues:
        raise JobFailed("--trim drops the history of all queues, so all must be archived: leave out --queue or --trim")
    if options.is_trimming and not source.is_server:
        raise JobFailed(
            f"{source.shown} is no server, and only a server can drop its history: name it, as in http://127.0.0.1:8080"
        )
    if not source.is_server and is_archive(source.where):
        raise JobFailed(f"{source.where} is an archive already; name a server or its data folder")


def _begin_folder(root: str) -> None:
    folder = Path(location_of(root))
    if "://" in location_of(root):
        return
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            sync([folder.parent])
    except OSError as error:
        raise JobFailed(f"{root} cannot be an archive: {error.strerror}. Name a folder that can be written") from None
    if (folder / "journal").exists():
        raise JobFailed(f"{root} is the data folder of a server; name another folder for the archive")


@dataclass(slots=True)
class _Done:
    """What a run has come to so far."""

    batches: int = 0
    # A run may follow for months, so files are counted and not kept.
    files: int = 0
    bytes: int = 0
    queues: list[QueueRows] = field(default_factory=list)
    letters: int | None = None

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.queues)


class _Run:
    def __init__(self, spark: SparkSession, options: ArchiveOptions, progress: Progress) -> None:
        self._spark = spark
        self._options = options
        self._progress = progress
        self._source = _address(options.source.where)
        self._done = _Done()

    def all(self, stopping: threading.Event) -> Outcome:
        self._progress.step("Looking at the archive")
        with _said_of(self._options.source):
            read = read_options(source_options(self._options.source))
            self._kept_now(read)
        table = self._table()
        is_first = not positions_of(table)
        self._remember_queues()
        with _said_of(self._options.source), open_histories(read) as histories:
            check_goes_on(table, histories, frozenset(read.queues))
        self._progress.step("Archiving")
        self._archive(table, read, stopping)
        self._trim(table)
        self._look_at_the_dead()
        return outcome(self._done, root=self._options.root, unknown=self._unknown_queues() if is_first else ())

    def _kept_now(self, read: ReadOptions) -> dict[int, int]:
        with open_histories(read) as histories:
            return {shard: kept.end for shard, kept in histories.kept().items()}

    def _table(self) -> Table:
        queues = sorted(self._options.source.queues)
        said = {"source": self._source, "queues": queues, "shards": []}
        table = Table.begin(f"{self._options.root}/{MESSAGES}", ARCHIVED, described=said, partition_by=[DAY])
        known = table.described
        if known.get("queues") != queues:
            kept = ", ".join(known.get("queues") or []) or "all queues"
            raise JobFailed(f"{self._options.root} is an archive of {kept}: take the same, or begin another archive")
        if known.get("source") != self._source:
            if not self._options.is_moved:
                raise JobFailed(
                    f"{self._options.root} is an archive of {known.get('source')}, not of {self._source}. If that is "
                    "the same store under another address, say --moved"
                )
            table.describe({**known, "source": self._source})
        return table

    def _archive(self, table: Table, read: ReadOptions, stopping: threading.Event) -> None:
        with _said_of(self._options.source):
            target = None if self._options.is_following else self._kept_now(read)
        while not stopping.is_set():
            began_ms = now_ms()
            batch = self._planned(table, read, target)
            if batch.parts:
                wrote = self._written(batch, read)
                if now_ms() - began_ms > BATCH_MS_MAX:
                    raise JobFailed("a batch took more than 12 hours, and its files may be gone: run the job again")
                self._commit(table, batch, wrote)
            if not batch.has_more:
                if target is not None:
                    return
                stopping.wait(self._options.every_s)

    def _planned(self, table: Table, read: ReadOptions, target: Mapping[int, int] | None) -> Batch:
        tasks = 2 * self._spark.sparkContext.defaultParallelism
        per_task = min(max(self._options.rows_per_batch // tasks, ROWS_PER_TASK_MIN), ROWS_PER_TASK_MAX)
        limits = (self._options.rows_per_batch, min(per_task, self._options.rows_per_batch))
        with _said_of(self._options.source), open_histories(read) as histories:
            return next_batch(table, histories, target, limits, may_have_gaps=self._options.may_have_gaps)

    def _written(self, batch: Batch, read: ReadOptions) -> list[Wrote]:
        where = uri_for_tasks(f"{self._options.root}/{MESSAGES}")
        tasks = self._spark.sparkContext.parallelize(batch.parts, len(batch.parts))
        with _said_of(self._options.source):
            return tasks.map(partial(write_slice, options=read, where=where)).collect()

    def _commit(self, table: Table, batch: Batch, wrote: Sequence[Wrote]) -> None:
        files = [file for each in wrote for file in each.files]
        queues = queues_together(row for each in wrote for row in each.queues)
        until_ms = max((each.to_ms for each in queues), default=None)
        positions = {position_name(shard): end for shard, end in batch.ends.items()}
        if until_ms is not None:
            positions[SETTLED_UNTIL] = max(until_ms, table.position(SETTLED_UNTIL) or 0)
        remark = {"penstock.gap": json.dumps(batch.gaps)} if batch.gaps else {}
        try:
            table.commit(files, positions=positions, remark=remark)
        except AnotherWriter:
            remove_files(uri_for_tasks(table.location), (each.path for each in files))
            raise
        self._tell(table, files, queues, until_ms)

    def _tell(self, table: Table, files: list[DataFile], queues: list[QueueRows], until_ms: int | None) -> None:
        self._trim(table)
        self._done.batches += 1
        self._done.files += len(files)
        self._done.bytes += sum(each.bytes for each in files)
        self._done.queues = queues_together([*self._done.queues, *queues])
        lag_s = None if until_ms is None else max(now_ms() - until_ms, 0) / 1_000
        self._progress.rows(self._done.rows, lag_s=lag_s)

    def _trim(self, table: Table) -> None:
        """Let the server drop what a durable commit has, which the archive keeps from now on."""
        if self._options.is_trimming:
            with client_of(self._options.source) as client:
                for shard, before in sorted(positions_of(table).items()):
                    client.post("/api/history/trim", {"shard": shard, "before": before})

    def _unknown_queues(self) -> Sequence[str]:
        """Return the queues that were asked for and that the server does not have."""
        if not self._options.source.is_server:
            return ()
        described = described_queues(self._options.source)
        return [name for name in self._options.source.queues if name not in described]

    def _remember_queues(self) -> None:
        if not self._options.source.is_server:
            return
        folder = open_folder(uri_for_tasks(self._options.root))
        # A queue that is gone keeps what was known of it, as its rows do.
        known = {**json.loads(folder.get(QUEUES) or "{}"), **described_queues(self._options.source)}
        folder.put(QUEUES, json.dumps(known, indent=1, sort_keys=True) + "\n")

    def _look_at_the_dead(self) -> None:
        if not self._options.source.is_server:
            return
        self._progress.step("Looking at the dead letters")
        wanted = set(self._options.source.queues)
        there = dead_letter_queues(described_queues(self._options.source))
        names = [name for name in there if not wanted or name in wanted]
        live = replace(self._options.source, queues=names)
        read = read_options({**source_options(live), "read": "live"})
        try:
            self._done.letters = snapshot(self._spark, self._options.root, read)
        except (PySparkException, Py4JJavaError) as error:
            raise JobFailed(
                f"the history is archived, but the dead letters cannot be read: {reason_of(str(error))}"
            ) from error
        self._remember_queues()


def dead_letter_queues(queues: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of queues that dead letters go to, of those that there are."""
    named = {each["settings"].get("dead_letter_queue") for each in queues.values()}
    return sorted(name for name in queues if name.endswith(".dead") or name in named)


def snapshot(spark: SparkSession, root: str, read: ReadOptions) -> int:
    """Write what is in these queues now in the place of what was written last; return how many messages it is."""
    where = f"{root}/{DEAD_LETTERS}"
    table = Table.begin(where, DEAD_LETTERS_SCHEMA, described={})
    files: list[DataFile] = []
    if read.queues:
        tasks = spark.sparkContext.parallelize(list(read.queues), len(read.queues))
        wrote = tasks.map(partial(write_live, options=read, where=uri_for_tasks(where))).collect()
        files = [file for each in wrote for file in each]
    if files or table.delta.get_add_actions().num_rows:
        table.commit(files, positions={}, replaces=True)
    return sum(each.rows for each in files)


@contextmanager
def _said_of(source: HistoryLocation) -> Iterator[None]:
    """Say in a sentence what is wrong with the server or the folder."""
    try:
        yield
    except (
        BadOption, DatabaseRefused, NoHistory, LogCorrupted, ServerRefused, ServerUnreachable, OSError,
    ) as error:  # fmt: skip
        raise JobFailed(f"{source.shown} cannot be read: {error}") from error
    except (PySparkException, Py4JJavaError) as error:
        raise JobFailed(f"the history cannot be archived: {reason_of(str(error))}") from error


def outcome(done: _Done, *, root: str, unknown: Sequence[str] = ()) -> Outcome:
    """Return what a run came to: a row for each queue that got rows."""
    rows = done.rows
    if rows:
        sentence = f"Archived {counted(rows, 'row')} in {counted(done.batches, 'batch', 'batches')}."
    else:
        sentence = "Nothing new: the archive has all that was settled."
        if unknown:
            sentence += f" The server has no queue called {', '.join(unknown)}."
    figures: dict[str, int | float | str] = {
        "rows": rows,
        "batches": done.batches,
        "files": done.files,
        "bytes": done.bytes,
    }
    if done.letters is not None:
        figures["dead_letters"] = done.letters
    lines = [(each.queue, each.rows, text_of(each.from_ms), text_of(each.to_ms)) for each in done.queues]
    table = Shown("Archived", ("queue", "rows", "from", "to"), lines)
    return Outcome(sentence=sentence, tables=[table] if rows else [], written=[root] if rows else [], figures=figures)


def _address(where: str) -> str:
    """Return a source as the archive names it: the same from every folder, and without a password in its URL."""
    said = urlsplit(without_password(where))
    if not said.scheme:
        return str(Path(where).absolute())
    return said._replace(netloc=said.netloc.rpartition("@")[2]).geturl().rstrip("/")
