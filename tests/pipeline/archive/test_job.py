"""The archive job, from a data folder: what it reads, refuses, and goes on with."""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from bench.pipeline_data import write_history
from penstock.contract.history_columns import FRAME_ROW_BITS
from penstock.pipeline.archive.commit import Reach, Staged, entry_of, recover
from penstock.pipeline.archive.job import ArchiveOptions, run
from penstock.pipeline.archive.lock import ArchiveTaken, Lock
from penstock.pipeline.archive.manifest import Entry, create_entry, newest_entries, text_of
from penstock.pipeline.archive.stream import AnotherHistory, RowsAreGone, now_ms, resume_position
from penstock.pipeline.job import JobFailed, Outcome, Silent
from penstock.pipeline.locations import HistoryLocation, read_history
from penstock.pipeline.source.ranges import Range
from penstock.pipeline.storage import LocalFiles
from tests.pipeline.told import START_MS, write_frames
from tests.pipeline.told import run as settled

ROWS = 50_000
PER_BATCH = 20_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "data"
    write_history(folder, ROWS, queues=("orders", "mail"), seed=5)
    return folder


def places_of(root: Path) -> Counter[tuple[int, int]]:
    """Where each row stands in the history, as any reader of Parquet finds it."""
    table = ds.dataset(root / "messages", format="parquet", partitioning="hive").to_table(columns=["shard", "offset"])
    return Counter(zip(table["shard"].to_pylist(), table["offset"].to_pylist(), strict=True))


class Archived(NamedTuple):
    """A history that was archived by two runs: one that followed and was stopped, and one that did the rest."""

    root: Path
    stopped: Outcome
    first: Sequence[Entry]
    rest: Outcome
    lag_s: float | None


@pytest.fixture(scope="module")
def archived(spark: SparkSession, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Archived:
    root = tmp_path_factory.mktemp("archived") / "archive"
    stopping = threading.Event()
    lags: list[float | None] = []

    class Stops(Silent):
        def rows(self, count: int, *, total: int | None = None, lag_s: float | None = None) -> None:
            lags.append(lag_s)
            stopping.set()

    options = ArchiveOptions(source=HistoryLocation(where=str(data)), root=str(root), rows_per_batch=PER_BATCH)
    stopped = run(spark, replace(options, is_following=True, every_s=0.1), Stops(), stopping)
    first = newest_entries(LocalFiles(root))
    return Archived(root, stopped, first, run(spark, options, Silent()), lags[0])


def test_a_run_that_follows_ends_between_batches_when_it_is_told(archived: Archived) -> None:
    (entry,) = archived.first

    assert entry.rows == archived.stopped.figures["rows"]
    assert 0 < entry.rows < ROWS
    assert archived.lag_s is not None
    assert archived.lag_s > 0


def test_each_row_of_a_history_is_archived_once_over_several_runs(
    spark: SparkSession, data: Path, archived: Archived
) -> None:
    source = read_history(spark, HistoryLocation(where=str(data))).select("shard", "offset")

    assert places_of(archived.root) == Counter(tuple(row) for row in source.collect())
    assert sum(each.rows for each in newest_entries(LocalFiles(archived.root))) == ROWS
    assert archived.rest.figures["rows"] == ROWS - archived.first[0].rows
    assert archived.rest.figures["batches"] == 2
    (table,) = archived.rest.tables
    assert [row[0] for row in table.rows] == ["mail", "orders"]
    assert sum(int(row[1] or 0) for row in table.rows) == archived.rest.figures["rows"]
    assert sorted(each.name for each in archived.root.iterdir()) == ["manifest", "messages", "staging"]


def test_a_run_that_finds_nothing_new_says_so(spark: SparkSession, data: Path, archived: Archived) -> None:
    before = places_of(archived.root)
    again = run(spark, ArchiveOptions(source=HistoryLocation(where=str(data)), root=str(archived.root)), Silent())

    assert again.figures == {"rows": 0, "batches": 0, "files": 0, "bytes": 0}
    assert again.sentence == "Nothing new: the archive has all that was settled."
    assert places_of(archived.root) == before


def test_an_archive_of_some_queues_stays_one_of_these(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    staging = tmp_path / "staging" / "left-behind"
    staging.mkdir(parents=True)
    recover(LocalFiles(tmp_path), source=str(data), queues=["mail"], written_at=text_of(0))

    with pytest.raises(JobFailed, match="is an archive of mail: take the same, or begin another"):
        run(spark, ArchiveOptions(source=HistoryLocation(where=str(data)), root=str(tmp_path)), Silent())


def test_another_source_is_refused_unless_it_only_moved(
    spark: SparkSession, data: Path, archived: Archived, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.symlink_to(data)

    options = ArchiveOptions(source=HistoryLocation(where=str(other)), root=str(archived.root))
    with pytest.raises(JobFailed, match="under another address, say --moved"):
        run(spark, options, Silent())
    assert run(spark, replace(options, is_moved=True), Silent()).figures["rows"] == 0


def test_a_source_that_was_begun_again_is_refused_even_if_it_has_come_as_far(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, root = tmp_path / "data", tmp_path / "archive"
    write_frames(data, [[settled(0)], [settled(1_000)], [settled(2_000)]])
    files = LocalFiles(root)
    recover(files, source=str(data), queues=[], written_at=text_of(0))
    there = Reach(source=str(data), queues=[], offsets_from={"0": 0}, offsets_to={"0": 2 << FRAME_ROW_BITS})
    before = text_of(START_MS - 1)
    row = Staged(path="queue=orders/day=2026-03-01/a", bytes=1, rows=1, settled_from=before, settled_to=before)
    create_entry(files, entry_of(0, "", there, [row], written_at=before))

    with pytest.raises(AnotherHistory, match=r"has a row there that was settled at 2026-03-01T12:00:01.000Z"):
        run(spark, ArchiveOptions(source=HistoryLocation(where=str(data)), root=str(root)), Silent())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (ArchiveOptions(source=HistoryLocation(where="/data"), root="/a", is_trimming=True), "only a server can drop"),
        (
            ArchiveOptions(source=HistoryLocation(where="http://h", queues=["a"]), root="/a", is_trimming=True),
            "leave out --queue or --trim",
        ),
        (ArchiveOptions(source=HistoryLocation(where="/data"), root="http://h"), "http://h is a server"),
    ],
)
def test_what_would_lose_rows_is_refused_at_once(spark: SparkSession, options: ArchiveOptions, said: str) -> None:
    with pytest.raises(JobFailed, match=said):
        run(spark, options, Silent())


def test_a_folder_without_history_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="there is no history in"):
        run(
            spark, ArchiveOptions(source=HistoryLocation(where=str(tmp_path)), root=str(tmp_path / "archive")), Silent()
        )

    assert not (tmp_path / "archive" / "lock.json").exists()


def test_a_second_run_is_refused_while_the_first_is_at_work(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    Lock.take(LocalFiles(tmp_path), now_ms=now_ms())
    options = ArchiveOptions(source=HistoryLocation(where=str(data)), root=str(tmp_path))

    with pytest.raises(ArchiveTaken, match="--break-lock"):
        run(spark, options, Silent())


class Reached:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def has_reached(self, shard: int, offset: int) -> bool:
        return offset <= self._offset


def test_a_run_begins_where_the_manifest_ends_if_the_source_still_has_it(archived: Archived) -> None:
    last = newest_entries(LocalFiles(archived.root))[-1]
    end = last.offsets_to["0"]

    def begin(start: int, to: int, reached: int = 0, *, may_have_gaps: bool = False) -> tuple[int, bool, bool]:
        kept = {0: Range(0, start, to), 1: Range(1, 7, 9)}
        found = resume_position(last, kept, Reached(reached), may_have_gaps=may_have_gaps)
        assert found.offsets["1"] == 7
        return found.offsets["0"], found.has_gap, found.has_rows

    assert begin(0, end + 5) == (end, False, True)
    assert begin(end + 2, end + 5, may_have_gaps=True) == (end + 2, True, True)
    # A folder may tell less than its server did.
    assert begin(0, end - 1, reached=end) == (end, False, True)
    with pytest.raises(RowsAreGone, match=f"ends at offset {end} of shard 0, and the source keeps .* from {end + 2}"):
        begin(end + 2, end + 5)
    with pytest.raises(AnotherHistory, match="put back to an older copy"):
        begin(0, end - 1)
    with pytest.raises(AnotherHistory, match="no such shard"):
        resume_position(last, {1: Range(1, 0, 9)}, Reached(0), may_have_gaps=True)
