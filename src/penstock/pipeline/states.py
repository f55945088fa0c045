"""What a run leaves for the next one among its results: how far it has read, and what it has added up until there.

    <out>/state/about.json         what it rests on, and how much there is
    <out>/state/<name>.parquet     what was added up

The next run reads what is new, adds it, and has the results of a run over everything. It may do so only if all
that the state rests on is still the same: the job and its options, the place and what was read of it, this
version of Penstock, and the bytes of the state. If not, it computes anew and says why.

A state takes the place of the one before together with the results (`reports.folder`), so that the two always fit.
It is read and written by the driver, as the results are: what has more rows than `ROWS_MAX` is not kept.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.pipeline.database_addresses import is_database
from penstock.pipeline.extents import Extent, Read, Stretch, growth
from penstock.pipeline.job import counted
from penstock.pipeline.locations import Part, Place
from penstock.pipeline.reports.folder import MARK
from penstock.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATE = "state"
ROWS_MAX = 1_000_000
_VERSION = 1
_ABOUT = "about.json"
_ASKED = "that was asked for"
_NOT_THERE = "the last run left no whole state"
_DAMAGED = "the state that the last run left is damaged"

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    extent: Extent
    # How many rows of the history it is made of.
    rows: int
    # Small things, as JSON has them.
    figures: Mapping[str, Any] = field(default_factory=dict)
    # As Arrow has them.
    tables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a run begins."""

    # None if everything is computed anew.
    known: State | None
    extent: Extent
    part: Part
    # Why it is computed anew; empty at the first run.
    reason: str

    @property
    def rows_known(self) -> int:
        return self.known.rows if self.known else 0

    def table(self, spark: "SparkSession", name: str, schema: str) -> "DataFrame":
        """Return what is known of a table, as a frame; without rows if nothing is."""
        if self.known is None or not self.known.tables[name].num_rows:
            return spark.createDataFrame([], schema)
        return spark.createDataFrame(self.known.tables[name], schema)

    def grown(self, name: str, more: "DataFrame") -> Any:
        """Return what is known of a table with the rows of a frame, as Arrow has them; None if that is too much."""
        import pyarrow as pa  # type: ignore[import-untyped] # noqa: PLC0415 - it comes with Spark.

        found = kept(more)
        if found is None or self.known is None:
            return found
        whole = pa.concat_tables([self.known.tables[name].cast(found.schema), found])
        return whole if len(whole) <= ROWS_MAX else None

    def told(self, rows_new: int, *, is_kept: bool = True, more: str = "") -> str:
        """Say how much was read, and why if that is more than what is new; ``more`` is said of what was known."""
        known = f", and {self.rows_known:,} were known" if self.known else ""
        anew = f" All was computed anew: {self.reason}." if self.reason else ""
        left = "" if is_kept else f" The next run computes anew: there is more to remember than {ROWS_MAX:,} rows."
        return f"{counted(rows_new, 'row was read', 'rows were read')}{known}.{more}{anew}{left}"

    def counts(self, rows_new: int) -> dict[str, int]:
        """The same for programs."""
        return {"rows_new": rows_new, "rows_known": self.rows_known}


def begin(spark: "SparkSession", place: Place, out: str, options: Options, *, is_anew: bool) -> Start:
    """Look at what the last run left and at what the place has now; without ``out``, nothing was left."""
    rests_on = _rests_on(place, options)
    known, reason = (None, _ASKED) if is_anew else _recalled(Path(out), rests_on) if out else (None, "")
    found = growth(spark, place, known.extent if known else None)
    if found.reason:
        known, reason = None, found.reason
    return Start(known=known, extent=found.extent, part=found.part, reason=reason)


def leave(folder: Path, place: Place, options: Options, state: State) -> None:
    """Write a state into a folder of results."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped] # noqa: PLC0415 - it comes with Spark.

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


def kept(frame: "DataFrame") -> Any:
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
        tables = {name: _table(out / STATE / f"{name}.parquet", expected) for name, expected in said["tables"].items()}
    except FileNotFoundError:
        # Nothing has to be said of a first run.
        return None, _NOT_THERE if (out / MARK).exists() else ""
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None, _DAMAGED
    extent = Extent(
        files={name: Read(*each) for name, each in said["extent"]["files"].items()},
        shards={name: Stretch(*each) for name, each in said["extent"]["shards"].items()},
    )
    return State(extent=extent, rows=said["rows"], figures=said["figures"], tables=tables), ""


def _table(path: Path, expected: str) -> Any:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != expected:
        raise ValueError(f"{path} is not what was written")
    return pq.read_table(pa.BufferReader(content))


def _rests_on(place: Place, options: Options) -> dict[str, Any]:
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
