"""The archive job, from a data folder: what it reads, refuses, and goes on with."""

import json
import threading
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from bench.pipeline_data import write_history
from penstock.pipeline.archives.begins import AnotherHistory, RowsAreGone, beginning
from penstock.pipeline.archives.files import LocalFiles
from penstock.pipeline.archives.locking import ArchiveTaken, Lock
from penstock.pipeline.archives.manifest import newest_entries
from penstock.pipeline.archives.stream import now_ms
from penstock.pipeline.jobs.archive import ArchiveOptions, run
from penstock.pipeline.jobs.outcome import JobFailed, Silent
from penstock.pipeline.places import Place, read_history
from penstock.pipeline.source.ranges import Range

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


def test_a_history_is_archived_once_in_batches_however_often_it_is_run(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    options = ArchiveOptions(source=Place(where=str(data)), root=str(root), rows_per_batch=PER_BATCH)
    first = run(spark, options, Silent())
    again = run(spark, options, Silent())

    source = read_history(spark, Place(where=str(data)))
    assert places_of(root) == Counter((row["shard"], row["offset"]) for row in source.select("shard", "offset").collect())
    assert first.figures["rows"] == ROWS
    assert first.figures["batches"] == len(newest_entries(LocalFiles(root))) > 1
    assert (again.figures["rows"], again.figures["batches"]) == (0, 0)
    assert again.sentence == "Nothing new: the archive has all that was settled."
    (table,) = first.tables
    assert [row[0] for row in table.rows] == ["mail", "orders"]
    assert sum(int(row[1] or 0) for row in table.rows) == ROWS
    assert sorted(each.name for each in root.iterdir()) == ["manifest", "messages", "staging"]


def test_a_run_that_follows_ends_between_batches_when_it_is_told(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    stopping = threading.Event()

    class Stops(Silent):
        def rows(self, count: int, *, total: int | None = None, lag_s: float | None = None) -> None:
            assert lag_s is not None
            assert lag_s > 0
            stopping.set()

    options = ArchiveOptions(
        source=Place(where=str(data)), root=str(root), rows_per_batch=PER_BATCH, is_following=True, every_s=0.1
    )
    stopped = run(spark, options, Stops(), stopping)
    (entry,) = newest_entries(LocalFiles(root))
    rest = run(spark, ArchiveOptions(source=Place(where=str(data)), root=str(root)), Silent())

    assert entry.rows == stopped.figures["rows"]
    assert 0 < entry.rows < ROWS
    assert int(rest.figures["rows"]) + entry.rows == ROWS
    assert set(places_of(root).values()) == {1}
    assert sum(places_of(root).values()) == ROWS


def test_an_archive_of_some_queues_stays_one_of_these(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    some = ArchiveOptions(source=Place(where=str(data), queues=["mail"]), root=str(root))
    done = run(spark, some, Silent())

    assert 0 < int(done.figures["rows"]) < ROWS
    with pytest.raises(JobFailed, match="is an archive of mail: take the same, or begin another"):
        run(spark, ArchiveOptions(source=Place(where=str(data)), root=str(root)), Silent())


def test_another_source_is_refused_unless_it_only_moved(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    root, other = tmp_path / "archive", tmp_path / "other"
    run(spark, ArchiveOptions(source=Place(where=str(data)), root=str(root)), Silent())
    other.symlink_to(data)

    options = ArchiveOptions(source=Place(where=str(other)), root=str(root))
    with pytest.raises(JobFailed, match="under another address, say --moved"):
        run(spark, options, Silent())
    moved = ArchiveOptions(source=Place(where=str(other)), root=str(root), is_moved=True)
    assert run(spark, moved, Silent()).figures["rows"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (ArchiveOptions(source=Place(where="/data"), root="/a", is_trimming=True), "only a server can drop"),
        (
            ArchiveOptions(source=Place(where="http://h", queues=["a"]), root="/a", is_trimming=True),
            "leave out --queue or --trim",
        ),
        (ArchiveOptions(source=Place(where="/data"), root="http://h"), "http://h is a server"),
    ],
)
def test_what_would_lose_rows_is_refused_at_once(spark: SparkSession, options: ArchiveOptions, said: str) -> None:
    with pytest.raises(JobFailed, match=said):
        run(spark, options, Silent())


def test_a_folder_without_history_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="there is no history in"):
        run(spark, ArchiveOptions(source=Place(where=str(tmp_path)), root=str(tmp_path / "archive")), Silent())

    assert not (tmp_path / "archive" / "lock.json").exists()


def test_a_second_run_is_refused_while_the_first_is_at_work(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    Lock.take(LocalFiles(tmp_path), now_ms=now_ms())
    options = ArchiveOptions(source=Place(where=str(data)), root=str(tmp_path))

    with pytest.raises(ArchiveTaken, match="--break-lock"):
        run(spark, options, Silent())


class Reached:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def has_reached(self, shard: int, offset: int) -> bool:
        return offset <= self._offset


def test_a_run_begins_where_the_manifest_ends_if_the_source_still_has_it(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    run(spark, ArchiveOptions(source=Place(where=str(data)), root=str(tmp_path), rows_per_batch=ROWS), Silent())
    last = newest_entries(LocalFiles(tmp_path))[-1]
    end = last.offsets_to["0"]
    assert json.loads((tmp_path / "manifest" / f"{last.batch:020}.json").read_text())["offsets_to"] == {"0": end}

    def begin(start: int, to: int, reached: int = 0, *, may_have_gaps: bool = False) -> tuple[int, bool, bool]:
        kept = {0: Range(0, start, to), 1: Range(1, 7, 9)}
        found = beginning(last, kept, Reached(reached), may_have_gaps=may_have_gaps)
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
        beginning(last, {1: Range(1, 0, 9)}, Reached(0), may_have_gaps=True)
