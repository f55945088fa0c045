"""The readers that Spark asks for partitions on the driver, and for the rows of each on an executor.

A stream reads micro-batches of the history, each from where the last one ended. An offset of the stream is a
dictionary from shard to the offset of the next row, both as `partitions` and a checkpoint have them: {"0": 393216}.
The same two offsets give the same rows for as long as they are kept, so a batch that is tried again is the same
batch. Nothing is committed: a server keeps its history for a time, no matter what has been read.
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.contract.history_columns import Column, ddl
from penstock.pipeline.options import BadOption, ReadOptions, known_columns, read_options
from penstock.pipeline.source.ranges import (
    Histories,
    HistoryEndsBefore,
    Range,
    Slice,
    Slices,
    Wanted,
    batch_ranges,
    checked_start,
    sliced,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@contextmanager
def open_histories(options: ReadOptions) -> Iterator[Histories]:
    """Lend what the options name. Each is imported on first use, as it needs packages that the others do not."""
    if options.path and find_spec("crc32c") is None:
        raise ModuleNotFoundError(
            "reading a data folder needs the package crc32c on every executor: pip install crc32c, or read from the "
            "server"
        )
    if options.path and options.topic:
        from penstock.pipeline.source.topic_folder import FolderTopic  # noqa: PLC0415

        yield FolderTopic(options.path, options.topic, options.partitions)
        return
    if options.path:
        from penstock.pipeline.source.folder import FolderHistories  # noqa: PLC0415

        yield FolderHistories(options.path)
        return
    if options.is_database:
        from penstock.pipeline.source.database import open_database  # noqa: PLC0415

        with open_database(options.url, options.schema) as histories:
            yield histories
        return
    from penstock.pipeline.http import ServerClient  # noqa: PLC0415
    from penstock.pipeline.source.server import ServerHistories  # noqa: PLC0415

    with ServerClient(options.url, options.key) as client:
        if options.topic:
            from penstock.pipeline.source.server import ServerTopic  # noqa: PLC0415

            yield ServerTopic(client, options.topic, options.partitions)
        else:
            yield ServerHistories(client)


def schema_for(options: Mapping[str, str]) -> str:
    """Return the columns of a read, as DDL; raises `BadOption`."""
    return ddl(read_options(options).columns)


class HistoryReader(DataSourceReader):
    """Pickled with what the driver knew: the options and the API key, so executors need no environment."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        self._options = options_with(options, schema)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        if options.is_live:
            from penstock.pipeline.source.server import live_partitions  # noqa: PLC0415

            return live_partitions(options)
        goes_on = options.starting == "earliest" or not options.fails_on_data_loss
        with open_histories(options) as histories:
            return sliced(histories, batch_ranges(histories, options), options, goes_on=goes_on)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, Slice | Slices):
            return read_slices(self._options, partition)
        if self._options.is_live and partition.value is not None:
            from penstock.pipeline.source.server import read_live  # noqa: PLC0415

            return read_live(self._options, partition.value)
        # Spark makes a partition of nothing where there are none.
        return iter(())


def read_slices(options: ReadOptions, task: Slice | Slices) -> Iterator[Any]:
    wanted = Wanted(options.columns, frozenset(options.queues), options.from_ms, options.until_ms)
    with open_histories(options) as histories:
        for part in task.parts if isinstance(task, Slices) else [task]:
            yield from histories.read(part, wanted)


def options_with(given: Mapping[str, str], schema: "StructType") -> ReadOptions:
    """Return the options of a read with the columns that Spark expects: ours, unless the user gave it a schema."""
    options = read_options(given)
    there = known_columns(is_live=options.is_live, is_topic=bool(options.topic))
    known = {column.name: column for column in there}
    columns: list[Column] = []
    for field in schema.fields:
        column, kind = known.get(field.name), field.dataType.simpleString().upper()
        if column is None or column.kind.upper().replace(" ", "") != kind:
            raise BadOption(
                f"the schema has a column `{field.name}` {kind}; there are: {ddl(tuple(known.values()))}. "
                "Leave the schema out, or say which columns with the option columns"
            )
        columns.append(column)
    return replace(options, columns=tuple(columns))


class HistoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        self._options = options_with(options, schema)
        if self._options.is_live:
            raise BadOption("read is live, and a stream is of history: live messages can only be read as a batch")
        if self._options.ending != "latest":
            raise BadOption("endingOffsets is for batches: a stream goes on; AvailableNow ends at what is there")
        # Where a run of AvailableNow ends.
        self._target: dict[str, int] | None = None
        self._latest: dict[str, int] | None = None
        # When the last batch was given; the first one waits for nothing.
        self._gave_s = -math.inf

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name.
        with open_histories(self._options) as histories:
            starts = {rows.shard: rows.start for rows in batch_ranges(histories, self._options)}
            # A shard without rows to read begins at its end, or where it was said to if that is further on: a folder
            # tells less than its server has told already, and none of that is to be read twice.
            said = self._options.starting if isinstance(self._options.starting, dict) else {}
            return {
                str(shard): starts.get(shard, max(kept.end, said.get(shard, 0)))
                for shard, kept in histories.kept().items()
            }

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name.
        rows = self._options.rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name.
        with open_histories(self._options) as histories:
            self._target = _ends(histories.kept())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name.
        with open_histories(self._options) as histories:
            kept = histories.kept()
            self._latest = _ends(kept)
            _check_reached(histories, start, self._latest, self._options.noun)
            ends = self._latest if self._target is None else self._target
            # The end may lie before what was read: a folder shows less than its server, and a target is older.
            end = {shard: max(ends.get(shard, 0), start.get(shard, 0)) for shard in {*ends, *start}}
            if self._target is None and self._waits(start, end):
                return start
            if isinstance(limit, ReadMaxRows):
                end = _limited(histories, start, end, limit.max_rows)
        return dict(sorted(end.items(), key=lambda each: int(each[0])))

    def _waits(self, start: dict[str, int], end: dict[str, int]) -> bool:
        """Whether there is too little to begin a batch with, and it is too early to begin with less."""
        found = sum(until - start.get(shard, 0) for shard, until in end.items())
        is_late = time.monotonic() - self._gave_s >= self._options.trigger_delay_ms_max / 1_000
        if found < self._options.records_per_trigger_min and not (found and is_late):
            return True
        self._gave_s = time.monotonic()
        return False

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802 - Spark's name.
        return self._latest

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        options, fails = self._options, self._options.fails_on_data_loss
        ranges: list[Range] = []
        with open_histories(options) as histories:
            kept = histories.kept()
            for shard, until in end.items():
                there = kept.get(int(shard))
                if there is None:
                    raise HistoryEndsBefore(
                        f"the stream has read {options.noun} {shard}, and there is no such {options.noun} now"
                    )
                if start.get(shard, 0) == until:
                    continue
                first = checked_start(there, start.get(shard, 0), fails=fails, noun=options.noun)
                rows = Range(int(shard), first, until)
                if rows.start < rows.end:
                    ranges.append(rows)
            return sliced(histories, ranges, options, goes_on=not fails)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Slice | Slices)
        return read_slices(self._options, partition)

    def commit(self, end: dict[str, int]) -> None:
        pass


def _ends(kept: dict[int, Range]) -> dict[str, int]:
    return {str(shard): rows.end for shard, rows in kept.items()}


def _check_reached(histories: Histories, start: dict[str, int], latest: dict[str, int], noun: str) -> None:
    """Refuse a checkpoint of another history: the rows at its offsets would never come, or be others."""
    for shard, offset in start.items():
        if offset > latest.get(shard, 0) and not histories.has_reached(int(shard), offset):
            raise HistoryEndsBefore(
                f"the stream has read {noun} {shard} up to offset {offset}, and its history ends at "
                f"{latest.get(shard, 0)}: this is another history than that of the checkpoint. Begin with a new "
                "checkpoint, or name the right server or folder"
            )


def _limited(histories: Histories, start: dict[str, int], end: dict[str, int], rows_max: int) -> dict[str, int]:
    """Return how far a batch of so many rows goes: each shard that has something gets an equal part."""
    kept = histories.kept()
    firsts = {shard: max(start.get(shard, 0), kept[int(shard)].start) for shard in end if int(shard) in kept}
    behind = [shard for shard, first in firsts.items() if first < end[shard]]
    for shard in behind:
        rows = Range(int(shard), firsts[shard], end[shard])
        end = {**end, shard: histories.offset_after(rows, max(rows_max // len(behind), 1))}
    return end
