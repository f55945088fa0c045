"""Which part of a history a read is about: offsets of rows, from one on and below another, for each shard.

    earliest                                                            latest
    ├─ dropped ─┼──────────────── kept ─────────────────────────────────┤
                     ├─ slice ─┼─ slice ─┼─ slice ─┤
                   start                          end

An offset is that of a frame in the log of a shard, shifted by 17 bits, and a row in it:
the same number for a server and for its data folder.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pyspark.sql.datasource import InputPartition

from penstock.contract.history_columns import Column
from penstock.pipeline.options import NEWEST, OLDEST, SHARD, BadOption, Offsets, ReadOptions


class HistoryDropped(Exception):
    """Rows that were to be read are no longer kept; the message says which, and what to do."""


class HistoryEndsBefore(Exception):
    """A read was to begin where the history has never been."""


class NoHistory(Exception):
    """There is no history of a store in this folder."""


class Wanted(NamedTuple):
    """Which columns, and which rows of them."""

    columns: tuple[Column, ...]
    # By name; empty for all.
    queues: frozenset[str]
    from_ms: int | None
    until_ms: int | None


class Range(NamedTuple):
    """Rows of one shard: from an offset on, and below another."""

    shard: int
    start: int
    end: int


class Slice(InputPartition):
    """What one task reads."""

    def __init__(self, rows: Range, *, goes_on: bool, hint: tuple[int, int] | None = None) -> None:
        self.rows = rows
        # Whether rows that are no longer kept are passed over.
        self.goes_on = goes_on
        # Of a data folder: the offset of a frame, and its position in its segment.
        self.hint = hint


class Slices(InputPartition):
    """What one task reads where there is little in each: one slice after the other."""

    def __init__(self, parts: list[Slice]) -> None:
        self.parts = parts


class Histories(Protocol):
    """The histories of all shards, in a folder or at a server."""

    def kept(self) -> dict[int, Range]:
        """Return what there is now, by shard."""
        ...

    def offset_since(self, kept: Range, at_ms: int) -> int:
        """Return an offset at or below that of every row settled at this time or later."""
        ...

    def offset_after(self, rows: Range, count: int) -> int:
        """Return where to end a range so that it has about so many rows: whole frames, and one at least."""
        ...

    def slices(self, rows: Range, count: int, *, goes_on: bool) -> list[Slice]:
        """Cut a range into parts of about so many rows."""
        ...

    def has_reached(self, shard: int, offset: int) -> bool:
        """Whether there has been such an offset, even if what is below is not all told yet."""
        ...

    def read(self, part: Slice, wanted: Wanted) -> Iterator[Any]:
        """Yield record batches of the wanted rows and columns of a part."""
        ...


def batch_ranges(histories: Histories, options: ReadOptions) -> list[Range]:
    """Return what a batch reads: of each shard, what is kept now and within the options."""
    kept = histories.kept()
    starts, ends = (_by_shard(offsets, kept, options.noun) for offsets in (options.starting, options.ending))
    _check_known(options.starting_ms, kept, options.noun)
    found = []
    for shard, there in kept.items():
        start = starts.get(shard, there.start)
        start = checked_start(there, start, fails=options.fails_on_data_loss, noun=options.noun)
        for since_ms in (options.from_ms, options.starting_ms.get(shard)):
            if since_ms is not None:
                start = max(start, histories.offset_since(there, since_ms))
        end = min(ends.get(shard, there.end), there.end)
        if start < end:
            found.append(Range(shard, start, end))
    return found


def _by_shard(offsets: Offsets, kept: Mapping[int, Range], noun: str) -> dict[int, int]:
    """Return the offset for each shard; a shard that they do not limit is left out."""
    if isinstance(offsets, dict):
        _check_known(offsets, kept, noun)
        ends = {NEWEST: lambda shard: kept[shard].end, OLDEST: lambda shard: kept[shard].start}
        return {shard: ends[offset](shard) if offset < 0 else offset for shard, offset in offsets.items()}
    return {shard: there.end if offsets == "latest" else there.start for shard, there in kept.items()}


def _check_known(given: Mapping[int, int], kept: Mapping[int, Range], noun: str) -> None:
    unknown = sorted(given.keys() - kept.keys())
    if unknown:
        raise BadOption(f"offsets are given for the {noun} {unknown[0]}; there are: {', '.join(map(str, kept))}")


def sliced(
    histories: Histories, ranges: Sequence[Range], options: ReadOptions, *, goes_on: bool
) -> list[InputPartition]:
    """Cut ranges into what each task reads: by size, and smaller if that is fewer tasks than there must be.

    Nothing but the ranges says where, so that a batch of a stream that is repeated has the same tasks.
    """
    count = options.rows_per_partition
    while True:
        parts = [part for rows in ranges for part in histories.slices(rows, count, goes_on=goes_on)]
        # Offsets of a topic count records, so that small parts are known by them.
        tasks: list[InputPartition] = joined(parts, count) if options.topic else list(parts)
        if len(tasks) >= options.tasks_min or count == 1:
            return tasks
        count = max(count // 2, 1)


def checked_start(kept: Range, start: int, *, fails: bool, noun: str = SHARD) -> int:
    """Return where to begin, if what is below what is kept may be passed over; raise `HistoryDropped` if not."""
    if start < kept.start and fails:
        raise dropped(kept.shard, start, kept.start, noun=noun)
    return max(start, kept.start)


def dropped(shard: int, start: int, first_kept: int, *, noun: str = SHARD) -> HistoryDropped:
    return HistoryDropped(
        f"{noun} {shard} is no longer kept from offset {start} on: what is kept begins at {first_kept}. "
        "To go on with what is kept, say failOnDataLoss=false; to lose nothing, read sooner or let the server keep "
        "it for longer"
    )


# Partitions share a task as long as it has this part of the rows that a task may have: work is still spread.
SMALL = 16


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
