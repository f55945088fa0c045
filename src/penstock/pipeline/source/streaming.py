"""The stream reader: micro-batches of the history, each from where the last one ended.

An offset of the stream is a dictionary from shard to the offset of the next row, both
as `partitions` and a checkpoint have them: {"0": 393216}. The same two offsets give the
same rows for as long as they are kept, so a batch that is tried again is the same batch.

Nothing is committed here: a server keeps its history for a time, whoever has read it.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.pipeline.source.opening import open_histories
from penstock.pipeline.source.options import BadOption
from penstock.pipeline.source.ranges import (
    Histories,
    HistoryEndsBefore,
    Range,
    Slice,
    Slices,
    batch_ranges,
    checked_start,
)
from penstock.pipeline.source.reader import options_with, read_slices, tasks_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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
            # What is told may end before what was read: a folder tells less than its server, a target is from before.
            end = {shard: max(ends.get(shard, 0), start.get(shard, 0)) for shard in {*ends, *start}}
            if isinstance(limit, ReadMaxRows):
                end = _limited(histories, start, end, limit.max_rows)
        return dict(sorted(end.items(), key=lambda each: int(each[0])))

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802 - Spark's name.
        return self._latest

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        options, fails = self._options, self._options.fails_on_data_loss
        parts: list[Slice] = []
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
                    parts += histories.slices(rows, options.rows_per_partition, goes_on=not fails)
        return tasks_of(options, parts)

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
