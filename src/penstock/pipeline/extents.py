"""How much of a place a run has read, and whether the next one may go on from there.

    archive                     its files: each by name, size and time of change, as `load` knows those that it has read
    server, folder, database    offsets by shard, and a digest of the last rows before them

A run goes on from where the last one ended if all that was read then is still there, and still what it was. So a
history that was trimmed, put back to an older copy or begun anew is noticed; an archive of which files are gone, too.

An extent is what is there at one moment: rows that come while a job reads are those of the next run.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.pipeline.audit.inputs import DATABASE_ROW_BITS, ROW_BITS
from penstock.pipeline.database_addresses import DatabaseRefused
from penstock.pipeline.job import JobFailed
from penstock.pipeline.load.files import listed
from penstock.pipeline.locations import MESSAGES, Part, Place, check_folder, check_place, is_archive, source_options
from penstock.pipeline.schemas import HISTORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.source.ranges import Histories, Range

# By which a row is known again.
_TELLING = ("queue_id", "key", "settled_at", "offset")


class Stretch(NamedTuple):
    """Of one shard: from which offset on and up to which, and what the last rows of it are."""

    start: int
    end: int
    last: str


class Read(NamedTuple):
    """A file that was read."""

    size: int
    changed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    # Of an archive, by path below its messages; else of each shard. One of the two is empty.
    files: Mapping[str, Read] = field(default_factory=dict)
    shards: Mapping[str, Stretch] = field(default_factory=dict)


class Growth(NamedTuple):
    """What a place has now."""

    extent: Extent
    # What is to be read: what is new, or all.
    part: Part
    # Why it cannot be gone on from what was known; empty if it can, or nothing was.
    reason: str = ""


def growth(spark: "SparkSession", place: Place, known: Extent | None) -> Growth:
    """Return what a place has, and what of it is new since ``known``."""
    check_place(place)
    if is_archive(spark, place.where):
        return _of_files(spark, f"{place.where}/{MESSAGES}", known)
    check_folder(place)
    with _histories(place) as (histories, from_ms):
        return _of_shards(histories, from_ms, known)


def part_of(extent: Extent, place: Place) -> Part:
    """Return what was read of a place, to be read again."""
    return Part(
        files=[f"{place.where}/{MESSAGES}/{name}" for name in extent.files],
        offsets_to={shard: each.end for shard, each in extent.shards.items()},
    )


def _of_files(spark: "SparkSession", where: str, known: Extent | None) -> Growth:
    found = {file.path.rpartition(f"/{MESSAGES}/")[2]: file for file in listed(spark, where)}
    extent = Extent(files={name: Read(file.size, file.changed_at_ms) for name, file in sorted(found.items())})
    read = {} if known is None else known.files
    reason = ""
    if lost := next((name for name in read if extent.files.get(name) != read[name]), None):
        word = "has been changed" if lost in extent.files else "is gone"
        reason, read = f"{lost}, which was read then, {word}", {}
    return Growth(extent, Part(files=[file.path for name, file in sorted(found.items()) if name not in read]), reason)


def _of_shards(histories: "Histories", from_ms: int | None, known: Extent | None) -> Growth:
    kept = histories.kept()
    read = {} if known is None else known.shards
    reason = next(filter(None, (_lost(histories, int(shard), kept, each) for shard, each in read.items())), "")
    if reason:
        read = {}
    stretches = {}
    for shard, there in kept.items():
        if before := read.get(str(shard)):
            start = before.start
        else:
            start = there.start if from_ms is None else max(there.start, histories.offset_since(there, from_ms))
        stretches[str(shard)] = Stretch(start, there.end, _digest(histories, there, there.end))
    part = Part(
        offsets_from={shard: each.end for shard, each in read.items()},
        offsets_to={shard: each.end for shard, each in stretches.items()},
    )
    return Growth(Extent(shards=stretches), part, reason)


def _lost(histories: "Histories", shard: int, kept: "Mapping[int, Range]", read: Stretch) -> str:
    """Say why a shard is no longer what was read of it; nothing if it is."""
    there = kept.get(shard)
    if there is None:
        return f"shard {shard}, which was read then, is not there"
    if there.start > read.start:
        return f"the history of shard {shard} was read from offset {read.start} on, and is kept from {there.start} on"
    if there.end < read.end or _digest(histories, there, read.end) != read.last:
        return f"the history of shard {shard} is another one than was read then"
    return ""


def _digest(histories: "Histories", kept: "Range", end: int) -> str:
    """Return a digest of the rows of the last frame, or transaction, before an offset; empty if there are none."""
    from penstock.pipeline.source.history_arrow import Wanted  # noqa: PLC0415
    from penstock.pipeline.source.ranges import Range, Slice  # noqa: PLC0415

    wanted = Wanted(tuple(column for column in HISTORY if column.name in _TELLING), frozenset(), None, None)
    for bits in (ROW_BITS, DATABASE_ROW_BITS):
        rows = Range(kept.shard, max(end - (1 << bits), kept.start), end)
        batches = histories.read(Slice(rows, goes_on=True), wanted) if rows.start < end else ()
        told = sorted(row for batch in batches for row in zip(*_columns(batch), strict=True))
        if told:
            return hashlib.sha256(repr(told).encode()).hexdigest()
    return ""


def _columns(batch: Any) -> Iterator[list[int]]:
    for name in _TELLING:
        column = batch.column(name)
        yield (column.cast("int64") if name == "settled_at" else column).to_pylist()


@contextmanager
def _histories(place: Place) -> "Iterator[tuple[Histories, int | None]]":
    """Lend the histories of a place; what is wrong with them is said in a sentence."""
    from penstock.log.recovery import LogCorrupted  # noqa: PLC0415
    from penstock.pipeline.http import ServerRefused, ServerUnreachable  # noqa: PLC0415
    from penstock.pipeline.source.folder import NoHistory  # noqa: PLC0415
    from penstock.pipeline.source.options import BadOption, read_options  # noqa: PLC0415
    from penstock.pipeline.source.reader import open_histories  # noqa: PLC0415

    try:
        options = read_options(source_options(place))
        with open_histories(options) as histories:
            yield histories, options.from_ms
    except (
        BadOption, DatabaseRefused, NoHistory, LogCorrupted, ServerRefused, ServerUnreachable, OSError,
    ) as error:  # fmt: skip
        raise JobFailed(f"{place.shown} cannot be read: {error}") from error
