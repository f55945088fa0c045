"""The archive job, from a data folder: what it reads, refuses, and goes on with."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from bench.pipeline_data import write_history
from penstock.contract.history_columns import FRAME_ROW_BITS
from penstock.pipeline.archive.job import ArchiveOptions, run
from penstock.pipeline.archive.position import (
    SETTLED_UNTIL,
    AnotherHistory,
    RowsAreGone,
    position_name,
    positions_of,
    start_offsets,
)
from penstock.pipeline.job import JobFailed, Outcome, Silent
from penstock.pipeline.locations import MESSAGES, HistoryLocation, read_history
from penstock.pipeline.source.ranges import Range
from penstock.pipeline.tables import Table
from tests.pipeline.archived import files_of, rows_of
from tests.pipeline.told import START_MS, write_frames
from tests.pipeline.told import run as settled

ROWS = 50_000
PER_BATCH = 20_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "data"
    write_history(folder, ROWS, queues=("orders", "mail"), seed=5, with_bodies=True)
    return folder


def table_of(root: Path) -> Table:
    return Table.open(f"{root}/{MESSAGES}")


class Archived(NamedTuple):
    """A history that was archived by two runs: one that followed and was stopped, and one that did the rest."""

    root: Path
    stopped: Outcome
    rest: Outcome
    lag_s: float | None


@pytest.fixture(scope="module")
def archived(spark: SparkSession, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Archived:
    root = tmp_path_factory.mktemp("archived") / "an archive"
    stopping = threading.Event()
    lags: list[float | None] = []

    class Stops(Silent):
        def rows(self, count: int, *, total: int | None = None, lag_s: float | None = None) -> None:
            lags.append(lag_s)
            stopping.set()

    options = ArchiveOptions(source=HistoryLocation(where=str(data)), root=str(root), rows_per_batch=PER_BATCH)
    stopped = run(spark, replace(options, is_following=True, every_s=0.1), Stops(), stopping)
    return Archived(root, stopped, run(spark, options, Silent()), lags[0])


def test_a_run_that_follows_ends_between_batches_when_it_is_told(archived: Archived) -> None:
    assert archived.stopped.figures["batches"] == 1
    assert 0 < int(archived.stopped.figures["rows"]) < ROWS
    assert archived.lag_s is not None
    assert archived.lag_s > 0


def test_each_row_of_a_history_is_archived_as_it_is_over_several_runs(
    spark: SparkSession, data: Path, archived: Archived
) -> None:
    source = read_history(spark, HistoryLocation(where=str(data)))
    kept = read_history(spark, HistoryLocation(where=str(archived.root)))

    assert kept.columns == source.columns
    assert kept.count() == ROWS
    assert source.exceptAll(kept).count() == kept.exceptAll(source).count() == 0
    assert archived.rest.figures["rows"] == ROWS - int(archived.stopped.figures["rows"])
    assert archived.rest.figures["batches"] == 2
    (table,) = archived.rest.tables
    assert [row[0] for row in table.rows] == ["mail", "orders"]
    assert sum(int(row[1] or 0) for row in table.rows) == archived.rest.figures["rows"]


def test_files_are_of_one_day_and_in_the_order_of_queue_and_time(archived: Archived) -> None:
    table = table_of(archived.root)
    for path in files_of(archived.root):
        order = [(row["queue"], row["settled_at"]) for row in pq.ParquetFile(path).read().to_pylist()]
        assert order == sorted(order)
    actions = table.delta.get_add_actions(flatten=True)
    assert sum(actions["num_records"].to_pylist()) == ROWS
    for day, least, most in zip(
        *(actions[name].to_pylist() for name in ("partition.day", "min.settled_at", "max.settled_at")), strict=True
    ):
        assert least.strftime("%Y-%m-%d") == most.strftime("%Y-%m-%d") == day


def test_a_run_that_finds_nothing_new_says_so(spark: SparkSession, data: Path, archived: Archived) -> None:
    before = table_of(archived.root).version
    again = run(spark, ArchiveOptions(source=HistoryLocation(where=str(data)), root=str(archived.root)), Silent())

    assert again.figures == {"rows": 0, "batches": 0, "files": 0, "bytes": 0}
    assert again.sentence == "Nothing new: the archive has all that was settled."
    assert table_of(archived.root).version == before


def test_an_archive_is_read_by_queue_and_time_from_the_files_that_may_have_it(
    spark: SparkSession, data: Path, archived: Archived
) -> None:
    place = HistoryLocation(where=str(archived.root), queues=["mail"], since="2026-02-26T00:00:00Z")
    place = replace(place, until="2026-02-26T06:00:00+00:00")
    rows = read_history(spark, place)

    wanted = read_history(spark, replace(place, where=str(data)))
    assert rows.count() > 0
    assert rows.exceptAll(wanted).count() == wanted.exceptAll(rows).count() == 0
    assert all("day=2026-02-26" in path for path in rows.inputFiles())


def test_an_archive_of_some_queues_stays_one_of_these(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    options = ArchiveOptions(source=HistoryLocation(where=str(data), queues=["mail"]), root=str(tmp_path))
    run(spark, options, Silent())
    assert {row["queue"] for row in rows_of(tmp_path, ["queue"])} == {"mail"}

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
    back = ArchiveOptions(source=HistoryLocation(where=str(data)), root=str(archived.root), is_moved=True)
    assert run(spark, back, Silent()).figures["rows"] == 0


def test_a_source_that_was_begun_again_is_refused_even_if_it_has_come_as_far(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, root = tmp_path / "data", tmp_path / "archive"
    write_frames(data, [[settled(0)], [settled(1_000)], [settled(2_000)]])
    options = ArchiveOptions(source=HistoryLocation(where=str(data)), root=str(root))
    run(spark, options, Silent())
    table = table_of(root)
    assert positions_of(table) == {0: 3 << FRAME_ROW_BITS}
    table.commit([], positions={position_name(0): 2 << FRAME_ROW_BITS, SETTLED_UNTIL: START_MS - 1})

    with pytest.raises(AnotherHistory, match=r"has a row there that was settled at 2026-03-01T12:00:01.000Z"):
        run(spark, options, Silent())


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


class Reached:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def has_reached(self, shard: int, offset: int) -> bool:
        return offset <= self._offset


def test_a_run_begins_at_the_position_if_the_source_still_has_it() -> None:
    end = 100

    def begin(start: int, to: int, reached: int = 0, *, may_have_gaps: bool = False) -> int:
        kept = {0: Range(0, start, to), 1: Range(1, 7, 9)}
        found = start_offsets({0: end}, kept, Reached(reached), may_have_gaps=may_have_gaps)  # type: ignore[arg-type]
        assert found[1] == 7
        return found[0]

    assert begin(0, end + 5) == end
    assert begin(end + 2, end + 5, may_have_gaps=True) == end + 2
    # A folder may tell less than its server did.
    assert begin(0, end - 1, reached=end) == end
    with pytest.raises(RowsAreGone, match=f"ends at offset {end} of shard 0, and the source keeps .* from {end + 2}"):
        begin(end + 2, end + 5)
    with pytest.raises(AnotherHistory, match="put back to an older copy"):
        begin(0, end - 1)
    with pytest.raises(AnotherHistory, match="no such shard"):
        start_offsets({0: end}, {1: Range(1, 0, 9)}, Reached(0), may_have_gaps=True)  # type: ignore[arg-type]
