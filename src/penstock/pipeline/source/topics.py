"""Reads a topic from a server: whole record batches over HTTP, several tasks side by side, each with its offsets.

    driver      /api/topics/{topic}                       partitions, and what each holds
    executors   /api/topics/{topic}/records, as batches   from an offset on, until the range is read

What a history has as shards, a topic has as partitions; offsets are those that Kafka's
clients see. Nothing is committed, and no consumer group knows of it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from pyspark.sql.datasource import InputPartition

from penstock.pipeline.http import Asking, ServerRefused
from penstock.pipeline.source.history_arrow import Wanted
from penstock.pipeline.source.options import PARTITION, BadOption
from penstock.pipeline.source.ranges import HistoryEndsBefore, Range, Slice, Slices, dropped
from penstock.pipeline.source.record_batches import batch_of, read_batches

# Partitions share a task as long as it has this part of the rows that a task may have: work is still spread.
SMALL = 16


class ServerTopic:
    def __init__(self, asking: Asking, topic: str, partitions: tuple[int, ...]) -> None:
        self._asking = asking
        self._topic = topic
        # Empty for all.
        self._partitions = partitions
        self._path = f"/api/topics/{quote(topic, safe='')}"

    def kept(self) -> dict[int, Range]:
        said = self._asking.json(self._path)["partitions"]
        found = {
            each["partition"]: Range(each["partition"], each["start_offset"], each["high_watermark"]) for each in said
        }
        return chosen_of(found, self._topic, self._partitions)

    def offset_since(self, kept: Range, at_ms: int) -> int:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
        since = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        page = self._asking.json(f"{self._path}/records", partition=kept.shard, since=since, limit=1)
        offset: int = page["records"][0]["offset"] if page["records"] else page["next"]
        return min(max(offset, kept.start), kept.end)

    def offset_after(self, rows: Range, count: int) -> int:
        return min(rows.start + count, rows.end)

    def slices(self, rows: Range, count: int, *, goes_on: bool) -> list[Slice]:
        return cut(rows, count, goes_on=goes_on)

    def has_reached(self, shard: int, offset: int) -> bool:
        kept = self.kept().get(shard)
        return kept is not None and offset <= kept.end

    def read(self, part: Slice, wanted: Wanted) -> Iterator[Any]:
        partition, offset, end = part.rows
        while offset < end:
            batches = list(read_batches(memoryview(self._fetch(part, offset))))
            if not batches:
                offset = self._further(part, offset)
                continue
            rows = batch_of(batches, self._topic, partition, (offset, end), wanted)
            if rows is not None:
                yield rows
            offset = batches[-1].next_offset

    def _fetch(self, part: Slice, offset: int) -> bytes:
        """Return batches from the one that holds an offset on; nothing if there is no such offset any more."""
        try:
            return self._asking.batches(f"{self._path}/records", partition=part.rows.shard, offset=offset)
        except ServerRefused as error:
            if error.status == 400 and offset < self.kept()[part.rows.shard].start:
                return b""
            raise

    def _further(self, part: Slice, offset: int) -> int:
        """Return where to go on where there is nothing at an offset, if that may be."""
        kept = self.kept()[part.rows.shard]
        if kept.start <= offset:
            raise HistoryEndsBefore(
                f"partition {kept.shard} of {self._topic} was to be read up to {part.rows.end}, and ends at {offset}"
            )
        if not part.goes_on:
            raise dropped(kept.shard, offset, kept.start, noun=PARTITION)
        return kept.start


def chosen_of(found: dict[int, Range], topic: str, partitions: tuple[int, ...]) -> dict[int, Range]:
    """Return the partitions that were named, or all."""
    missing = [partition for partition in partitions if partition not in found]
    if missing:
        raise BadOption(f"partitions names {missing[0]}; {topic} has: {', '.join(map(str, found))}")
    return {partition: found[partition] for partition in partitions or found}


def joined(parts: list[Slice], count: int) -> list[InputPartition]:
    """Give small neighbours to one task: a topic of a thousand partitions is not a thousand tasks of a few records.

    Nothing but the parts says which, so that a batch of a stream that is repeated has the same tasks.
    """
    groups: list[list[Slice]] = []
    room = 0
    for part in parts:
        size = part.rows.end - part.rows.start
        if not groups or size > room:
            groups.append([])
            room = count // SMALL
        groups[-1].append(part)
        room -= size
    return [group[0] if len(group) == 1 else Slices(group) for group in groups]


def cut(rows: Range, count: int, *, goes_on: bool) -> list[Slice]:
    """Cut a range into parts of so many offsets: one that begins within a batch passes over what is before."""
    starts = range(rows.start, rows.end, count)
    return [Slice(Range(rows.shard, start, min(start + count, rows.end)), goes_on=goes_on) for start in starts]
