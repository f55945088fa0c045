"""The file operations of an archive, by the operating system and by Hadoop; and what Spark stages through them."""

from pathlib import Path

import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.archive.commit import Reach, commit, entry_of, recover
from penstock.pipeline.archive.manifest import BrokenArchive, newest_entries, staging_path
from penstock.pipeline.archive.stream import stage
from penstock.pipeline.locations import HistoryLocation, is_archive, read_history
from penstock.pipeline.storage import Files, HadoopFiles, LocalFiles, files_of
from tests.pipeline.rows import at, history

AT = "2026-03-01T12:00:02.000Z"
DAY_S = 86_400


@pytest.fixture(params=["local", "hadoop"])
def files(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Files:
    root = tmp_path / "an archive"
    root.mkdir()
    return LocalFiles(root) if request.param == "local" else HadoopFiles(spark, str(root))


def test_a_file_is_created_once_and_replaced_whole(files: Files) -> None:
    files.make_folder("manifest")

    assert files.create("manifest/0.json", b"first")
    assert not files.create("manifest/0.json", b"second")
    assert files.read("manifest/0.json") == b"first"

    files.replace("manifest/0.json", b"third")
    assert files.read("manifest/0.json") == b"third"
    assert [name for name in files.names("manifest") if not name.startswith(".")] == ["0.json"]


def test_a_file_that_another_run_has_moved_is_moved(files: Files) -> None:
    files.make_folder("staging")
    files.create("staging/a", b"rows")
    files.move(source="staging/a", target="messages/queue=a/b")
    files.move(source="staging/a", target="messages/queue=a/b")

    assert files.read("messages/queue=a/b") == b"rows"
    with pytest.raises(FileNotFoundError):
        files.move(source="staging/a", target="messages/queue=a/c")


def test_what_is_put_takes_the_place_of_what_was_there(files: Files) -> None:
    files.make_folder("staging")
    for content in (b"old", b"new"):
        files.create("staging/a", content)
        files.put(source="staging/a", target="dead_letters/all")

    assert files.read("dead_letters/all") == b"new"
    files.remove("dead_letters")
    files.remove("dead_letters")
    assert not files.exists("dead_letters")
    assert files.names("dead_letters") == []


def test_a_path_is_of_this_machine_unless_it_says_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    for said in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        assert files_of(spark, said).where("a b") == f"file:{tmp_path}/a b"


def test_a_staged_batch_becomes_files_of_a_queue_and_a_day_in_order(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    rows = history(
        spark,
        [
            {
                "queue": ("orders", "orders.dead", "7")[number % 3],
                "settled_at": at((number * 7_919 % 997) * 200),
                "tier": number * 31 % 5,
                "data": b"\x00\xff" if number % 2 else None,
                "group": None if number % 4 else "ann",
            }
            for number in range(200)
        ],
    )
    last = recover(files, source="here", queues=(), written_at=AT)
    where = staging_path(0, "run")
    reach = Reach(source="here", queues=(), offsets_from={"0": 0}, offsets_to={"0": 200})
    staged = stage(rows.drop("id"), files.where(where), offsets_from={"0": 0}, offsets_to={"0": 200})
    entry = commit(files, last=last, entry=entry_of(0, where, reach, staged, written_at=AT))

    root = tmp_path / "an archive"
    wanted = sorted(rows.collect(), key=lambda row: row["offset"])
    found = ds.dataset(root / "messages", format="parquet", partitioning="hive").to_table().to_pylist()
    found.sort(key=lambda row: row["offset"])
    assert [row["id"] for row in found] == [row["id"] for row in wanted]
    assert [(row["data"], row["group"]) for row in found] == [
        (None if row["data"] is None else bytes(row["data"]), row["group"]) for row in wanted
    ]
    assert {row["day"] for row in found} == {"2026-03-01", "2026-03-02", "2026-03-03"}
    assert all(row["day"] == row["settled_at"].strftime("%Y-%m-%d") for row in found)
    assert [each.rows for each in newest_entries(files)[-1].files] == [each.rows for each in staged]
    assert entry.rows == 200
    for each in entry.files:
        file = pq.ParquetFile(root / each.path)
        order = [(row["tier"], row["settled_at"]) for row in file.read().to_pylist()]
        assert order == sorted(order)
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
        assert str(file.schema_arrow.field("settled_at").type) == "timestamp[us, tz=UTC]"
        assert (root / each.path).stat().st_size == each.bytes


def test_an_archive_is_read_by_queue_and_time_also_while_it_is_empty(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    root = str(tmp_path / "an archive")
    assert not is_archive(spark, root)
    last = recover(files, source="here", queues=(), written_at=AT)
    assert is_archive(spark, root)
    assert read_history(spark, HistoryLocation(where=root)).count() == 0

    rows = history(spark, [{"queue": queue, "settled_at": at(day * DAY_S)} for queue in "ab" for day in range(3)])
    reach = Reach(source="here", queues=(), offsets_from={"0": 0}, offsets_to={"0": 6})
    where = staging_path(0, "run")
    staged = stage(rows.drop("id"), files.where(where), offsets_from={"0": 0}, offsets_to={"0": 6})
    commit(files, last=last, entry=entry_of(0, where, reach, staged, written_at=AT))

    place = HistoryLocation(where=root, queues=["b"], since="2026-03-02T12:00:00Z", until="2026-03-03T12:00:00Z")
    (row,) = read_history(spark, place).collect()
    assert (row["queue"], row["offset"], row["id"]) == ("b", 4, "1-22")
    assert read_history(spark, HistoryLocation(where=root)).columns == rows.columns


def test_rows_outside_of_the_batch_are_never_committed(spark: SparkSession, tmp_path: Path) -> None:
    rows = history(spark, [{"offset": 9}, {"offset": 10}])

    with pytest.raises(BrokenArchive, match="shard 0 gave rows at offsets 9 to 10"):
        stage(rows.drop("id"), str(tmp_path / "a"), offsets_from={"0": 0}, offsets_to={"0": 10})
    assert stage(rows.drop("id").limit(0), str(tmp_path / "b"), offsets_from={}, offsets_to={}) == []
