"""What a run leaves for the next one among its results: how far it has read, and what it has added up until there.

    <out>/state/about.json         what it rests on, and how much there is
    <out>/state/<name>.parquet     what was added up

The next run reads what is new, adds it, and has the results of a run over everything. It may do so only if all that
the state rests on is still the same: the job and its options, the place and what was read of it, this version of
Penstock, and the bytes of the state. If not, it computes everything again and says why.

How far a run has read depends on the place:

    archive                     positions of its table by shard, and the version of its log
    server, folder, database    offsets by shard, and a digest of the last rows before them

A run goes on from where the last one ended if all that was read then is still there, and still what it was. So a
history that was trimmed, put back to an older copy or begun again is noticed, and so are rows that were deleted from an
archive; that its files were put together is no matter. Rows that come while a job reads are those of the next run.

A state takes the place of the one before together with the results (`reports.folder`), so that the two always fit.
The driver reads and writes it, as it does the results: what has more rows than `ROWS_MAX` is not kept.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from penstock.contract.history_columns import FRAME_ROW_BITS, HISTORY, TRANSACTION_ROW_BITS
from penstock.log.recovery import LogCorrupted
from penstock.pipeline.archive.position import positions_of
from penstock.pipeline.http import ServerRefused, ServerUnreachable
from penstock.pipeline.job import JobFailed, counted
from penstock.pipeline.locations import (
    MESSAGES,
    DatabaseRefused,
    HistoryLocation,
    HistorySlice,
    check_folder,
    check_place,
    is_archive,
    is_database,
    source_options,
)
from penstock.pipeline.options import BadOption, read_options
from penstock.pipeline.reports.folder import MARK
from penstock.pipeline.source.ranges import Histories, NoHistory, Range, Slice, Wanted
from penstock.pipeline.source.reader import open_histories
from penstock.pipeline.tables import Table
from penstock.version import __version__

# By which a row is known again.
_TELLING = ("queue_id", "key", "settled_at", "offset")


class OffsetRange(NamedTuple):
    """Of one shard: from which offset on and up to which, and what the last rows of it are."""

    start: int
    end: int
    last: str


class TableVersion(NamedTuple):
    """Of an archive: which table it was, and how far its log went."""

    id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPosition:
    shards: Mapping[str, OffsetRange] = field(default_factory=dict)
    table: TableVersion | None = None


class NewInput(NamedTuple):
    """What a place has now."""

    extent: ReadPosition
    # What is to be read: what is new, or all.
    part: HistorySlice
    # Why it cannot be gone on from what was known; empty if it can, or nothing was.
    reason: str = ""


def new_input(place: HistoryLocation, known: ReadPosition | None) -> NewInput:
    """Return what a place has, and what of it is new since ``known``."""
    check_place(place)
    if is_archive(place.where):
        return _of_archive(f"{place.where}/{MESSAGES}", known)
    check_folder(place)
    with _histories(place) as (histories, from_ms):
        return _of_shards(histories, from_ms, known)


def part_of(extent: ReadPosition) -> HistorySlice:
    """Return what was read of a place, to be read again."""
    return HistorySlice(offsets_to=_ends(extent))


def _of_archive(where: str, known: ReadPosition | None) -> NewInput:
    """Of an archive the positions of its table are the offsets; what was taken out of it since is in its log."""
    table = Table.open(where)
    stretches = {str(shard): OffsetRange(0, end, "") for shard, end in positions_of(table).items()}
    extent = ReadPosition(shards=stretches, table=TableVersion(table.id, table.version))
    read, reason = ({}, "") if known is None else (known.shards, _changed(table, known.table))
    if reason:
        read = {}
    starts = {shard: read[shard].end if shard in read else 0 for shard in stretches}
    return NewInput(extent, HistorySlice(offsets_from=starts, offsets_to=_ends(extent)), reason)


def _changed(table: Table, read: TableVersion | None) -> str:
    """Say why rows that were read then may not be there as they were; nothing if they are."""
    if read is None or read.id != table.id:
        return "the table of the archive is another one than was read then"
    done = table.operations_since(read.version)
    if done is None:
        return f"the log of the archive does not go back to version {read.version}, which was read then"
    if lost := next((each for each in done if each not in _KEEPING), None):
        return f"rows that were read then may be gone or changed: {lost}"
    return ""


# What is done to a table that leaves every row as it was.
_KEEPING = {"WRITE", "OPTIMIZE", "VACUUM START", "VACUUM END", "UPDATE TABLE METADATA", "SET TBLPROPERTIES", "FSCK"}


def _ends(extent: ReadPosition) -> dict[str, int]:
    return {shard: each.end for shard, each in extent.shards.items()}


def _of_shards(histories: Histories, from_ms: int | None, known: ReadPosition | None) -> NewInput:
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
        stretches[str(shard)] = OffsetRange(start, there.end, _digest_before(histories, there, there.end))
    part = HistorySlice(
        offsets_from={shard: each.end for shard, each in read.items()},
        offsets_to={shard: each.end for shard, each in stretches.items()},
    )
    return NewInput(ReadPosition(shards=stretches), part, reason)


def _lost(histories: Histories, shard: int, kept: Mapping[int, Range], read: OffsetRange) -> str:
    """Say why a shard is no longer what was read of it; nothing if it is."""
    there = kept.get(shard)
    if there is None:
        return f"shard {shard}, which was read then, is not there"
    if there.start > read.start:
        return f"the history of shard {shard} was read from offset {read.start} on, and is kept from {there.start} on"
    if there.end < read.end or _digest_before(histories, there, read.end) != read.last:
        return f"the history of shard {shard} is another one than was read then"
    return ""


def _digest_before(histories: Histories, kept: Range, end: int) -> str:
    """Return a digest of the rows of the last frame, or transaction, before an offset; empty if there are none."""
    wanted = Wanted(tuple(column for column in HISTORY if column.name in _TELLING), frozenset(), None, None)
    for bits in (FRAME_ROW_BITS, TRANSACTION_ROW_BITS):
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
def _histories(place: HistoryLocation) -> Iterator[tuple[Histories, int | None]]:
    """Lend the histories of a place; what is wrong with them is said in a sentence."""
    try:
        options = read_options(source_options(place))
        with open_histories(options) as histories:
            yield histories, options.from_ms
    except (
        BadOption, DatabaseRefused, NoHistory, LogCorrupted, ServerRefused, ServerUnreachable, OSError,
    ) as error:  # fmt: skip
        raise JobFailed(f"{place.shown} cannot be read: {error}") from error


STATE = "state"
ROWS_MAX = 1_000_000
_VERSION = 2
_ABOUT = "about.json"
_ASKED = "that was asked for"
_NOT_THERE = "the last run left no whole state"
_DAMAGED = "the state that the last run left is damaged"

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    extent: ReadPosition
    # How many rows of the history it is made of.
    rows: int
    # Small things, as JSON has them.
    figures: Mapping[str, Any] = field(default_factory=dict)
    # As Arrow has them.
    tables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousRun:
    """Where a run begins."""

    # None if everything is computed again.
    known: State | None
    extent: ReadPosition
    part: HistorySlice
    # Why everything is computed again; empty at the first run.
    reason: str

    @property
    def rows_known(self) -> int:
        return self.known.rows if self.known else 0

    def table(self, spark: SparkSession, name: str, schema: str) -> DataFrame:
        """Return what is known of a table, as a frame; without rows if nothing is."""
        if self.known is None or not self.known.tables[name].num_rows:
            return spark.createDataFrame([], schema)
        return spark.createDataFrame(self.known.tables[name], schema)

    def grown(self, name: str, more: DataFrame) -> Any:
        """Return what is known of a table with the rows of a frame, as Arrow has them; None if that is too much."""
        found = kept(more)
        if found is None or self.known is None:
            return found
        whole = pa.concat_tables([self.known.tables[name].cast(found.schema), found])
        return whole if len(whole) <= ROWS_MAX else None

    def grown_state(
        self, rows: int, tables: Mapping[str, Any], figures: Mapping[str, Any] | None = None
    ) -> State | None:
        """Return what the next run goes on from; None if a table of it is too much to keep."""
        if any(table is None for table in tables.values()):
            return None
        return State(extent=self.extent, rows=rows, figures=figures or {}, tables=tables)

    def told(self, rows_new: int, *, is_kept: bool = True, more: str = "") -> str:
        """Say how much was read, and why if that is more than what is new; ``more`` is said of what was known."""
        known = f", and {self.rows_known:,} were known" if self.known else ""
        again = f" Everything was computed again: {self.reason}." if self.reason else ""
        left = (
            ""
            if is_kept
            else f" The next run computes everything again: there is more to remember than {ROWS_MAX:,} rows."
        )
        return f"{counted(rows_new, 'row was read', 'rows were read')}{known}.{more}{again}{left}"

    def counts(self, rows_new: int) -> dict[str, int]:
        """The same for programs."""
        return {"rows_new": rows_new, "rows_known": self.rows_known}


def begin(place: HistoryLocation, out: str, options: Options, *, full_refresh: bool) -> PreviousRun:
    """Look at what the last run left and at what the place has now; without ``out``, nothing was left."""
    rests_on = _rests_on(place, options)
    known, reason = (None, _ASKED) if full_refresh else _recalled(Path(out), rests_on) if out else (None, "")
    found = new_input(place, known.extent if known else None)
    if found.reason:
        known, reason = None, found.reason
    return PreviousRun(known=known, extent=found.extent, part=found.part, reason=reason)


def leave(folder: Path, place: HistoryLocation, options: Options, state: State) -> None:
    """Write a state into a folder of results."""
    (folder / STATE).mkdir()
    digests = {}
    for name, table in state.tables.items():
        path = folder / STATE / f"{name}.parquet"
        # In one order: the same state is the same file.
        ordered = table.sort_by([(column, "ascending") for column in table.column_names])
        pq.write_table(ordered, path, compression="zstd")
        digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    said = {
        "rests_on": _rests_on(place, options),
        "extent": asdict(state.extent),
        "rows": state.rows,
        "figures": dict(state.figures),
        "tables": digests,
    }
    text = json.dumps({**said, "digest": _digest(said)}, indent=1)
    (folder / STATE / _ABOUT).write_text(text + "\n", encoding="utf-8")


def kept(frame: DataFrame) -> Any:
    """Return the rows of a frame, as Arrow has them; None if they are too many to keep."""
    found = frame.limit(ROWS_MAX + 1).toArrow()
    return found if len(found) <= ROWS_MAX else None


def _recalled(out: Path, rests_on: Options) -> tuple[State | None, str]:
    try:
        said = json.loads((out / STATE / _ABOUT).read_text(encoding="utf-8"))
        digest = said.pop("digest")
        if digest != _digest(said):
            return None, _DAMAGED
        if different := _difference(said["rests_on"], rests_on):
            return None, different
        tables = {}
        for name, expected in said["tables"].items():
            content = (out / STATE / f"{name}.parquet").read_bytes()
            if hashlib.sha256(content).hexdigest() != expected:
                return None, _DAMAGED
            tables[name] = pq.read_table(pa.BufferReader(content))
    except FileNotFoundError:
        # Nothing has to be said of a first run.
        return None, _NOT_THERE if (out / MARK).exists() else ""
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None, _DAMAGED
    extent = ReadPosition(
        shards={name: OffsetRange(*each) for name, each in said["extent"]["shards"].items()},
        table=TableVersion(*said["extent"]["table"]) if said["extent"]["table"] else None,
    )
    return State(extent=extent, rows=said["rows"], figures=said["figures"], tables=tables), ""


def _rests_on(place: HistoryLocation, options: Options) -> dict[str, Any]:
    is_address = place.is_server or is_database(place.where) or "://" in place.where
    said = {
        "version": [_VERSION, __version__],
        "place": place.shown.rstrip("/") if is_address else str(Path(place.where).absolute()),
        "queues": sorted(place.queues),
        "since": place.since,
        "until": place.until,
        **options,
    }
    # As it comes back.
    made: dict[str, Any] = json.loads(json.dumps(said))
    return made


def _difference(before: Options, now: Options) -> str:
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            return f"{name} is not what it was then"
    return ""


def _digest(said: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
