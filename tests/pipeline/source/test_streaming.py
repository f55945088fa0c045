"""The history as a stream: offsets, limits, and what happens when rows are gone."""

import asyncio
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.log.disk_log import DiskLog
from penstock.pipeline.options import BadOption
from penstock.pipeline.source.ranges import HistoryDropped, HistoryEndsBefore, Range, Slice
from penstock.pipeline.source.reader import HistoryStreamReader
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.store.embedded.history_writer import LOG_SETTINGS
from tests.pipeline import told
from tests.pipeline.reading import read_between, stream_of
from tests.pipeline.told import MIXED, START_MS, rows_of, run, write_frames, write_segments

# Of 3 rows each.
FRAMES = [[run(at, number=at * 3)] for at in range(6)]
ALL = ReadAllAvailable()


def offsets(reader: HistoryStreamReader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    found: list[int] = read_between(reader, start, end).column("offset").to_pylist()
    return found


def batches(reader: HistoryStreamReader, limit: Any, start: dict[str, int] | None = None) -> list[list[int]]:
    """Return the batches of a stream until there is nothing more."""
    at, found = reader.initialOffset() if start is None else start, []
    while (end := reader.latestOffset(at, limit)) != at:
        # What a checkpoint does to offsets.
        at, end = json.loads(json.dumps([at, end]))
        found.append(offsets(reader, at, end))
        at = end
    return found


def test_a_stream_reads_everything_once_in_batches_of_the_size_it_was_told(tmp_path: Path) -> None:
    write_segments(tmp_path, FRAMES)
    everything = [row["offset"] for row in rows_of(FRAMES)]
    reader = stream_of({"path": str(tmp_path), "maxRowsPerTrigger": "7"})

    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    assert stream_of({"path": str(tmp_path)}).getDefaultReadLimit() == ALL
    assert batches(reader, ALL) == [everything]
    assert [len(batch) for batch in batches(reader, ReadMaxRows(7))] == [6, 6, 6]
    # A frame that is larger than the limit goes alone.
    found = batches(reader, ReadMaxRows(1))
    assert [len(batch) for batch in found] == [3] * 6
    assert list(chain.from_iterable(found)) == everything


def test_the_same_offsets_give_the_same_rows(tmp_path: Path) -> None:
    write_segments(tmp_path, FRAMES)
    reader = stream_of({"path": str(tmp_path), "rowsPerPartition": "2"})
    start, end = {"0": 1 << 17 | 1}, {"0": 3 << 17 | 2}

    first = offsets(reader, start, end)
    write_segments(tmp_path, FRAMES)

    assert first == [row["offset"] for row in rows_of(FRAMES) if start["0"] <= row["offset"] < end["0"]]
    assert offsets(stream_of({"path": str(tmp_path)}), start, end) == first
    assert offsets(reader, start, start) == []


def test_a_batch_that_is_repeated_has_the_same_parts_whatever_came_since(tmp_path: Path) -> None:
    reader = stream_of({"path": str(tmp_path), "rowsPerPartition": "3000"})

    async def plan() -> list[list[Range]]:
        async with ThreadWorkers(1, halt) as workers:
            log = await DiskLog.open(system_runtime(tmp_path, workers), "history", LOG_SETTINGS)
            for at in range(60):
                await told.append(log, [run(at, count=400, number=at)])
            end = reader.latestOffset({"0": 0}, ALL)
            found = [ranges(reader.partitions({"0": 0}, end))]
            # The segment goes on, with rows that are larger.
            for at in range(60):
                await told.append(log, [run(at, count=1)._replace(error="x" * 5_000)])
            found.append(ranges(reader.partitions({"0": 0}, end)))
            await log.close()
            # Opened again, a log goes on with a new segment.
            await (await DiskLog.open(system_runtime(tmp_path, workers), "history", LOG_SETTINGS)).close()
        return [*found, ranges(reader.partitions({"0": 0}, end))]

    running, grown, closed = asyncio.run(plan())
    assert len(running) > 5
    assert running == grown == closed


def ranges(parts: Sequence[InputPartition]) -> list[Range]:
    return [part.rows for part in parts if isinstance(part, Slice)]


def test_a_stream_begins_where_it_is_told(tmp_path: Path) -> None:
    write_frames(tmp_path, FRAMES)
    write_frames(tmp_path, [MIXED], name="history-1")
    path = {"path": str(tmp_path)}

    assert stream_of(path).initialOffset() == {"0": 0, "1": 0}
    assert stream_of({**path, "startingOffsets": "latest"}).initialOffset() == {"0": 6 << 17, "1": 1 << 17}
    assert stream_of({**path, "startingOffsets": '{"0": 7}'}).initialOffset() == {"0": 7, "1": 0}
    assert stream_of({**path, "startingTime": f"{START_MS + 4}"}).initialOffset() == {"0": 4 << 17, "1": 0}
    late = stream_of({**path, "startingTime": f"{START_MS + 101}"})
    assert late.initialOffset() == {"0": 6 << 17, "1": 1 << 17}
    assert batches(late, ALL) == []


def test_a_limit_is_shared_by_the_shards_that_have_something(tmp_path: Path) -> None:
    write_frames(tmp_path, FRAMES)
    write_frames(tmp_path, FRAMES[:1], name="history-1")
    reader = stream_of({"path": str(tmp_path)})

    first = reader.latestOffset({"0": 0, "1": 0}, ReadMaxRows(6))
    assert first == {"0": 1 << 17, "1": 1 << 17}
    assert reader.latestOffset(first, ReadMaxRows(6)) == {"0": 3 << 17, "1": 1 << 17}


def test_available_now_ends_at_what_was_there_when_it_began(tmp_path: Path) -> None:
    write_frames(tmp_path, FRAMES[:4])
    reader = stream_of({"path": str(tmp_path)})
    reader.prepareForTriggerAvailableNow()
    write_frames(tmp_path, FRAMES[4:])

    assert [len(batch) for batch in batches(reader, ReadMaxRows(3))] == [3] * 4
    assert [len(batch) for batch in batches(stream_of({"path": str(tmp_path)}), ALL, {"0": 4 << 17})] == [6]
    assert reader.reportLatestOffset() == {"0": 6 << 17}


def test_a_shard_that_came_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    write_frames(tmp_path, FRAMES)
    write_frames(tmp_path, [MIXED], name="history-1")
    reader = stream_of({"path": str(tmp_path)})

    assert [len(batch) for batch in batches(reader, ALL, {"0": 6 << 17})] == [len(rows_of([MIXED]))]


async def _drop(folder: Path, frames: int) -> None:
    async with ThreadWorkers(1, halt) as workers:
        log = await DiskLog.open(system_runtime(folder, workers), "history", told.SHORT)
        await log.drop_before(frames)
        await log.close()


def test_rows_that_were_dropped_before_the_stream_came_are_an_error_unless_told_otherwise(tmp_path: Path) -> None:
    write_segments(tmp_path, FRAMES)
    asyncio.run(_drop(tmp_path, 3))
    start, end = {"0": 1 << 17}, {"0": 6 << 17}

    strict = stream_of({"path": str(tmp_path)})
    said = "no longer kept from offset 131072 on: what is kept begins at 393216"
    with pytest.raises(HistoryDropped, match=said):
        strict.partitions(start, strict.latestOffset(start, ALL))
    lenient = stream_of({"path": str(tmp_path), "failOnDataLoss": "false"})
    assert lenient.latestOffset(start, ReadMaxRows(4)) == {"0": 4 << 17}
    assert offsets(lenient, start, end) == [row["offset"] for row in rows_of(FRAMES) if row["offset"] >= 3 << 17]
    # All of a batch that is to be repeated may be gone.
    assert offsets(lenient, start, {"0": 2 << 17}) == []


def test_a_checkpoint_of_another_history_is_refused(tmp_path: Path) -> None:
    write_frames(tmp_path, FRAMES)
    reader = stream_of({"path": str(tmp_path)})

    with pytest.raises(HistoryEndsBefore, match="up to offset 917504, and its history ends at 786432: this is another"):
        reader.latestOffset({"0": 7 << 17}, ALL)
    with pytest.raises(HistoryEndsBefore, match="there is no such shard now"):
        reader.partitions({"3": 0}, {"3": 1})


def test_a_folder_that_tells_less_than_its_server_is_waited_for(tmp_path: Path) -> None:
    async def look() -> list[dict[str, int]]:
        async with ThreadWorkers(1, halt) as workers:
            log = await DiskLog.open(system_runtime(tmp_path, workers), "history", LOG_SETTINGS)
            for settlements in FRAMES:
                await told.append(log, settlements)
            # As a server has told it: all that is durable. No marker in the folder says so of the last frame.
            start = {"0": 6 << 17}
            seen = stream_of({"path": str(tmp_path)}).latestOffset(start, ALL)
            begun = stream_of({"path": str(tmp_path), "startingOffsets": json.dumps(start)}).initialOffset()
            await log.close()
            return [seen, begun]

    assert asyncio.run(look()) == [{"0": 6 << 17}] * 2


def test_what_a_stream_cannot_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="live messages can only be read as a batch"):
        stream_of({"url": "http://127.0.0.1:1", "read": "live"})
    with pytest.raises(BadOption, match="endingOffsets is for batches"):
        stream_of({"path": str(tmp_path), "endingOffsets": '{"0": 1}'})
