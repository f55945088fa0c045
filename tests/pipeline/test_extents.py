"""What of a place is new since a run, and whether a run may go on from the last one."""

import asyncio
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.log.disk_log import DiskLog
from penstock.pipeline.incremental import ReadPosition, new_input
from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import MESSAGES, HistoryLocation, read_history
from penstock.pipeline.tables import Table
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.settings import ServerSettings
from tests.pipeline.archived import grow
from tests.pipeline.rows import at
from tests.pipeline.source.test_server import told
from tests.pipeline.told import SHORT, run, write_frames, write_segments
from tests.postgres.servers import shared_server
from tests.server.serving import server


def numbers(
    spark: SparkSession, place: HistoryLocation, known: ReadPosition | None
) -> tuple[list[int], ReadPosition, str]:
    """Read what is new, and return it with what is known now and why it was begun from the start."""
    found = new_input(place, known)
    rows = read_history(spark, place, ("number",), part=found.part).collect()
    return sorted(row.number for row in rows), found.extent, found.reason


def test_of_a_data_folder_only_rows_behind_the_last_ones_are_new(spark: SparkSession, tmp_path: Path) -> None:
    place = HistoryLocation(where=str(tmp_path))
    write_frames(tmp_path, [[run(0, count=2)]])
    first, known, _ = numbers(spark, place, None)
    write_frames(tmp_path, [[run(1, number=2, count=1)]])
    write_frames(tmp_path, [[run(2, number=9, count=1)]], name="history-1")
    second, known, reason = numbers(spark, place, known)
    third, _, again = numbers(spark, place, known)

    assert (first, second, third) == ([0, 1], [2, 9], [])
    assert (reason, again) == ("", "")


def test_a_history_that_is_another_one_is_read_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    place = HistoryLocation(where=str(tmp_path))
    write_frames(tmp_path, [[run(0)], [run(1, number=3)]])
    _, known, _ = numbers(spark, place, None)

    # It was replaced by another, and is as long by now, or longer, or not yet.
    for frames in ([[run(5)], [run(6, number=3)]], [[run(5)]] * 3, [[run(0)]]):
        shutil.rmtree(tmp_path / "history")
        write_frames(tmp_path, frames)
        rows, _, reason = numbers(spark, place, known)
        assert len(rows) == 3 * len(frames)
        assert "another one" in reason
    write_frames(tmp_path, [[run(9)]], name="history-1")
    _, both, _ = numbers(spark, place, None)
    shutil.rmtree(tmp_path / "history-1")
    assert "shard 1, which was read then, is not there" in numbers(spark, place, both)[2]


def test_a_history_that_was_trimmed_is_read_as_a_whole_unless_the_range_begins_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_segments(tmp_path, [[run(0)], [run(10_000, number=3)], [run(20_000, number=6)]])
    place, later = (
        HistoryLocation(where=str(tmp_path)),
        HistoryLocation(where=str(tmp_path), since="2026-03-01T12:00:15Z"),
    )
    all_rows, known, _ = numbers(spark, place, None)
    late_rows, known_late, _ = numbers(spark, later, None)
    assert (len(all_rows), late_rows) == (9, [6, 7, 8])

    asyncio.run(_drop(tmp_path, 1))
    kept, _, reason = numbers(spark, place, known)
    assert kept == [3, 4, 5, 6, 7, 8]
    assert "is kept from" in reason
    assert numbers(spark, later, known_late)[0::2] == ([], "")


async def _drop(folder: Path, frames: int) -> None:
    async with ThreadWorkers(1, halt) as workers:
        log = await DiskLog.open(system_runtime(folder, workers), "history", SHORT)
        await log.drop_before(frames)
        await log.close()


def test_of_an_archive_only_rows_behind_its_last_position_are_new(spark: SparkSession, tmp_path: Path) -> None:
    where = grow(spark, tmp_path, [{"number": 1}, {"number": 2, "queue": "mail"}])
    place = HistoryLocation(where=where, queues=["orders"])
    first, known, _ = numbers(spark, place, None)
    nothing, known, _ = numbers(spark, place, known)
    grow(spark, tmp_path, [{"number": 3}, {"number": 4, "settled_at": at(100_000)}])
    table = Table.open(f"{where}/{MESSAGES}")
    assert table.delta.optimize.compact()["numFilesRemoved"] == 2
    second, known, reason = numbers(spark, place, known)

    assert (first, nothing, second, reason) == ([1], [], [3, 4], "")
    # What is taken out of an archive may have been read, so everything is.
    Table.open(table.location).delta.delete("number = 3")
    rows, known, reason = numbers(spark, place, known)
    assert rows == [1, 4]
    assert reason == "rows that were read then may be gone or changed: DELETE"
    shutil.rmtree(where)
    grow(spark, tmp_path, [{"number": 7}])
    assert numbers(spark, place, known)[0] == [7]


def test_of_a_server_and_of_its_database_only_rows_behind_the_last_ones_are_new(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = shared_server().new_database()
    with server(ServerSettings(port=0, data=tmp_path, store=url)) as running:
        places = [HistoryLocation(where=running.url), HistoryLocation(where=url)]
        with penstock.connect(running.url).sync() as client:
            client.create_queue("orders")
            known: list[ReadPosition | None] = [None, None]
            for already in range(0, 6, 2):
                client.queue("orders").send_many([b"a", b"b"])
                client.queue("orders").receive(limit=2).ack()
                told(running.url, already + 2, shards=1)
                for which, place in enumerate(places):
                    rows, known[which], reason = numbers(spark, place, known[which])
                    assert (len(rows), reason) == (2, "")
        # What one says of the end, the other one knows.
        assert known[0] == known[1]


def test_a_place_that_cannot_be_read_is_said_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "manifest").write_bytes(b"nonsense")
    with pytest.raises(JobFailed, match="cannot be read"):
        new_input(HistoryLocation(where=str(tmp_path)), None)
