"""Reading the history out of a data folder."""

import asyncio
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.contract.history_columns import BodyState
from penstock.log.disk_log import DiskLog
from penstock.log.recovery import LogCorrupted
from penstock.pipeline.source.folder import FolderHistories
from penstock.pipeline.source.ranges import HistoryDropped, NoHistory, Range
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.store.embedded.history_writer import LOG_SETTINGS
from tests.pipeline import told
from tests.pipeline.reading import parts_of, read
from tests.pipeline.told import MIXED, START_MS, append, rows_of, run, write_frames, write_segments

# Frames whose times overlap, of two queues; the third has none in the order of the others.
FRAMES = [
    [run(0), run(1, queue=2, count=2)],
    [run(2, number=3, count=1), run(4, number=4)],
    [run(3, queue=2, number=2, count=4)],
    [run(5, number=7, count=1), run(5, queue=2, number=6, count=1), run(6, number=8, count=2)],
]


def rows(options: dict[str, str], **more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read({**options, **more}).to_pylist()
    return found


def test_every_column_of_a_row_is_what_was_settled(tmp_path: Path) -> None:
    write_frames(tmp_path, [MIXED, [PLAIN_ERROR], MIXED])

    assert rows({"path": str(tmp_path)}) == rows_of([MIXED, [PLAIN_ERROR], MIXED])


PLAIN_ERROR = told.PLAIN._replace(error="lapsed", count=2)


def test_only_the_chosen_columns_are_there_and_in_their_order(tmp_path: Path) -> None:
    write_frames(tmp_path, [MIXED])

    for columns in ("offset,queue", "group", "shard", "settled_at,error,key"):
        wanted = [{name: row[name] for name in columns.split(",")} for row in rows_of([MIXED])]
        table = read({"path": str(tmp_path), "columns": columns})
        assert table.column_names == columns.split(",")
        assert table.to_pylist() == wanted


def test_bodies_are_there_where_a_queue_keeps_them(tmp_path: Path) -> None:
    bodies = told.kept(
        [b"a", b"", b"\xff"],
        [b'{"a": 1}', b"", b""],
        [BodyState.KEPT, BodyState.TOO_LARGE, BodyState.KEPT],
    )
    write_frames(tmp_path, [[told.PLAIN]], bodies=bodies)
    options = {"path": str(tmp_path), "columns": "data,attributes"}

    assert rows(options) == [
        {"data": b"a", "attributes": '{"a": 1}'},
        {"data": None, "attributes": None},
        {"data": b"\xff", "attributes": None},
    ]
    from_second = rows(options, startingOffsets='{"0": 1}')
    assert [row["data"] for row in from_second] == [None, b"\xff"]


@pytest.mark.parametrize("is_split", [False, True])
def test_ranges_of_offsets_are_exact_to_the_row(tmp_path: Path, is_split: bool) -> None:
    (write_segments if is_split else write_frames)(tmp_path, FRAMES)
    everything = rows_of(FRAMES)
    bounds = [0, 1, 5, 1 << 17, 1 << 17 | 2, 2 << 17, 3 << 17 | 4, 4 << 17]

    for start in bounds:
        for end in bounds:
            wanted = [row["offset"] for row in everything if start <= row["offset"] < end]
            given = {"startingOffsets": f'{{"0": {start}}}', "endingOffsets": f'{{"0": {end}}}'}
            found = rows({"path": str(tmp_path), "columns": "offset"}, **given, rowsPerPartition="2")
            assert [row["offset"] for row in found] == wanted


@pytest.mark.parametrize("is_split", [False, True])
def test_ranges_of_time_are_exact_to_the_millisecond(tmp_path: Path, is_split: bool) -> None:
    (write_segments if is_split else write_frames)(tmp_path, FRAMES)
    everything = rows_of(FRAMES)

    for start in range(-1, 8):
        for end in (*range(-1, 8), None):
            wanted = [
                row["offset"]
                for row in everything
                if told.at(START_MS + start) <= row["settled_at"]
                and (end is None or row["settled_at"] < told.at(START_MS + end))
            ]
            given = {"startingTime": f"{START_MS + start}"} | (
                {} if end is None else {"endingTime": f"{START_MS + end}"}
            )
            found = rows({"path": str(tmp_path), "columns": "offset"}, **given)
            assert [row["offset"] for row in found] == wanted


def test_only_messages_of_the_named_queues_are_read(tmp_path: Path) -> None:
    write_frames(tmp_path, [MIXED, *FRAMES])
    everything = rows_of([MIXED, *FRAMES])

    for queues in ("orders", "mail,orders.dead", "nobody", "mail, orders ,orders.dead"):
        names = {name.strip() for name in queues.split(",")}
        assert rows({"path": str(tmp_path)}, queue=queues) == [row for row in everything if row["queue"] in names]


def test_each_shard_has_its_own_history_and_offsets(tmp_path: Path) -> None:
    write_frames(tmp_path, FRAMES)
    write_frames(tmp_path, [MIXED], name="history-1")
    (tmp_path / "history-2").mkdir()

    assert rows({"path": str(tmp_path)}) == rows_of(FRAMES) + rows_of([MIXED], shard=1)
    found = rows({"path": str(tmp_path), "startingOffsets": '{"0": 262144}', "endingOffsets": '{"1": 2}'})
    assert found == [row for row in rows_of(FRAMES) if row["offset"] >= 2 << 17] + rows_of([MIXED], shard=1)[:2]
    with pytest.raises(ValueError, match="offsets are given for the shard 7; there are: 0, 1"):
        rows({"path": str(tmp_path), "startingOffsets": '{"7": 0}'})


def test_work_is_cut_into_parts_of_about_as_many_rows_as_asked_for(tmp_path: Path) -> None:
    write_segments(tmp_path / "short", FRAMES * 4)
    write_frames(tmp_path / "long", [[run(at, count=4_000, number=at)] for at in range(40)])

    assert len(parts_of({"path": str(tmp_path / "short")})) == 1
    assert 4 <= len(parts_of({"path": str(tmp_path / "short"), "rowsPerPartition": "16"})) <= 6
    parts = parts_of({"path": str(tmp_path / "long"), "rowsPerPartition": "40000"})
    sizes = [len(read({"path": str(tmp_path / "long")}, [part])) for part in parts]
    assert sum(sizes) == 160_000
    assert len(sizes) == 4
    assert max(sizes) <= 44_000


def test_a_folder_without_a_history_is_refused_with_a_hint(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NoHistory, match="the option path names the data folder of a server"):
            rows({"path": str(folder)})


def test_an_empty_history_has_no_rows(tmp_path: Path) -> None:
    write_frames(tmp_path, [])

    assert rows({"path": str(tmp_path)}) == []
    assert rows({"path": str(tmp_path)}, startingTime="0") == []


async def _written(source: Path, copy: Path, frames: int) -> None:
    """Write frames and copy the folder while the log is open, as it would be after a kill."""
    async with ThreadWorkers(1, halt) as workers:
        log = await DiskLog.open(system_runtime(source, workers), "history", LOG_SETTINGS)
        for settlements in FRAMES[:frames]:
            await append(log, settlements)
        shutil.copytree(source, copy)
        await log.close()


def test_what_no_marker_proves_durable_is_not_read(tmp_path: Path) -> None:
    for frames in range(1, len(FRAMES) + 1):
        asyncio.run(_written(tmp_path / f"{frames}", tmp_path / f"open-{frames}", frames))

        # The last commit is only told of by the next one.
        assert rows({"path": str(tmp_path / f"open-{frames}")}) == rows_of(FRAMES[: frames - 1])
        assert rows({"path": str(tmp_path / f"{frames}")}) == rows_of(FRAMES[:frames])


def test_a_torn_tail_is_not_read_and_not_an_error(tmp_path: Path) -> None:
    asyncio.run(_written(tmp_path / "whole", tmp_path / "open", len(FRAMES)))
    segment = tmp_path / "open" / "history" / f"{0:020}.log"
    whole = segment.read_bytes()

    durable = len(rows_of(FRAMES[:-1]))
    for lost in (1, 60, 61, 62, 200):
        segment.write_bytes(whole[:-lost])
        # Without the last marker, the one before it knows of one commit less.
        assert len(rows({"path": str(tmp_path / "open")})) in (durable, len(rows_of(FRAMES[:-2])))
    segment.write_bytes(whole + b"\0" * 500)
    assert rows({"path": str(tmp_path / "open")}) == rows_of(FRAMES[:-1])


def test_a_flipped_bit_is_an_error_that_names_file_and_position(tmp_path: Path) -> None:
    write_frames(tmp_path, FRAMES)
    segment = tmp_path / "history" / f"{0:020}.log"
    whole = bytearray(segment.read_bytes())

    harmless, errors = 0, []
    for position in range(0, len(whole) - 61, 97):
        segment.write_bytes(whole[:position] + bytes([whole[position] ^ 16]) + whole[position + 1 :])
        try:
            assert rows({"path": str(tmp_path)}) == rows_of(FRAMES)
            harmless += 1
        except LogCorrupted as error:
            errors.append(str(error))
    # Only the leader's epoch, and the offset that a marker repeats, may be wrong without being missed.
    assert harmless <= 1
    assert len(errors) > 20
    assert all(re.search(rf"{segment} is damaged at byte [0-9]+ .*penstock repair", error) for error in errors)


def test_a_wrong_index_is_not_believed(tmp_path: Path) -> None:
    write_segments(tmp_path, FRAMES)
    options = {"path": str(tmp_path), "rowsPerPartition": "1"}
    parts = parts_of(options)
    for index in (tmp_path / "history").glob("*.index"):
        content = index.read_bytes()
        index.write_bytes(content[:4] + b"\x07\0\0\0" + content[8:])

    assert read(options, parts).to_pylist() == rows_of(FRAMES)
    assert rows(options) == rows_of(FRAMES)
    for index in (tmp_path / "history").glob("*.index"):
        index.unlink()
    assert rows(options) == rows_of(FRAMES)


def test_nothing_in_the_folder_is_changed_by_reading_it(tmp_path: Path) -> None:
    write_segments(tmp_path, FRAMES)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tmp_path / "history").iterdir()}

    rows({"path": str(tmp_path), "startingTime": "0", "rowsPerPartition": "1"})

    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tmp_path / "history").iterdir()}


async def _drop(folder: Path, frames: int) -> None:
    async with ThreadWorkers(1, halt) as workers:
        log = await DiskLog.open(system_runtime(folder, workers), "history", told.SHORT)
        await log.drop_before(frames)
        await log.close()


def test_a_batch_from_the_earliest_goes_on_when_retention_was_faster(tmp_path: Path) -> None:
    write_segments(tmp_path, FRAMES)
    options = {"path": str(tmp_path), "rowsPerPartition": "1"}
    parts = parts_of(options)
    asyncio.run(_drop(tmp_path, 2))

    assert read(options, parts).to_pylist() == [row for row in rows_of(FRAMES) if row["offset"] >= 2 << 17]


def test_rows_that_are_no_longer_kept_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    write_segments(tmp_path, FRAMES)
    options = {"path": str(tmp_path), "startingOffsets": '{"0": 1}'}
    parts = parts_of(options)
    asyncio.run(_drop(tmp_path, 2))

    said = "shard 0 is no longer kept from offset 1 on: what is kept begins at 262144.*failOnDataLoss=false"
    with pytest.raises(HistoryDropped, match=said):
        read(options, parts)
    with pytest.raises(HistoryDropped, match=said):
        rows(options)
    kept = [row for row in rows_of(FRAMES) if row["offset"] >= 2 << 17]
    assert rows(options, failOnDataLoss="false") == kept
    assert rows({"path": str(tmp_path)}) == kept


def test_a_missing_segment_is_damage_and_not_retention(tmp_path: Path) -> None:
    write_segments(tmp_path, FRAMES)
    parts = parts_of({"path": str(tmp_path)})
    (tmp_path / "history" / f"{1:020}.log").unlink()

    with pytest.raises(LogCorrupted, match=r"00000000000000000000\.log is damaged"):
        read({"path": str(tmp_path)}, parts)


def test_a_range_of_so_many_rows_ends_with_a_whole_frame(tmp_path: Path) -> None:
    write_segments(tmp_path, FRAMES)
    histories = FolderHistories(str(tmp_path))
    end = 4 << 17

    # There are 5, 4, 4 and 4 rows.
    ends = [histories.offset_after(Range(0, 0, end), count) >> 17 for count in (1, 5, 8, 9, 16, 17, 99)]
    assert ends == [1, 1, 1, 2, 3, 4, 4]
    assert histories.offset_after(Range(0, 3, end), 2) == 1 << 17
    assert histories.offset_after(Range(0, 3, 5), 1) == 5
