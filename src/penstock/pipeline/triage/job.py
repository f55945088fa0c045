"""The job `triage`: dead letters by cause, with what helps to judge each; new and gone causes since the last run.

    history since the last run ──▶ burials ─┐
                   burials of the state ────┴─▶ judged ──▶ causes ──▶ tables, report.html, state

It reads the burials of a history and, where they are to be had, the bodies of what is still a dead letter: from
the archive's own copy of them, or from the server. All it leaves is its folder, whole or not at all.

The state keeps the burials and not the causes: each run asks again which are still dead letters, and
their bodies make a cause another one.

    causes.parquet, causes.csv   one row for each cause
    signatures.json              every signature found: what `replay --signature` takes
    signatures/<id>.json         the same for one cause, to replay just that
    memory.json                  what the next run compares with
    report.html                  for people

    {"version": 1, "signatures": [{"id": …, "signature": …, "cause": …, "count": …, "queues": […],
                                   "first_seen": …, "last_seen": …}, …]}
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.contract.history_columns import LIVE, ddl
from penstock.pipeline.archive.job import dead_letter_queues
from penstock.pipeline.incremental import PreviousRun, State, begin, leave
from penstock.pipeline.job import Outcome, Progress, Table, counted
from penstock.pipeline.locations import DEAD_LETTERS, HistoryLocation, is_archive, read_history, read_live, read_table
from penstock.pipeline.queue_info import described_queues
from penstock.pipeline.reports.folder import results, settle_folder, write_rows
from penstock.pipeline.reports.plots import cut
from penstock.pipeline.tables import is_table
from penstock.pipeline.triage.causes import (
    BUCKETS,
    BURIED,
    Cause,
    Memory,
    Remembered,
    Setting,
    burials_in,
    burials_over_time,
    cause_of,
    causes_of,
    gone,
    judged_burials,
    read_deploys,
    recall,
    remember,
    signatures_of,
)
from penstock.pipeline.triage.report import report, stamp

SIGNATURES = "signatures.json"
_VERSION = 1


def write_causes(folder: Path, causes: Sequence[Cause]) -> None:
    stamp = pa.timestamp("us", tz="UTC")
    tenant = pa.struct([("tenant", pa.string()), ("burials", pa.int64())])
    kinds = {
        **dict.fromkeys(("cause_id", "signature", "sample_error", "sample_body", "trend", "deploy"), pa.string()),
        **dict.fromkeys(("burials", "since_last", "messages", "tenants", "deliveries", "still_dead"), pa.int64()),
        **dict.fromkeys(("first_seen", "last_seen"), stamp),
        **dict.fromkeys(("queues", "sample_ids"), pa.list_(pa.string())),
        **dict.fromkeys(("tiers", "buckets"), pa.list_(pa.int64())),
        "top_tenants": pa.list_(tenant),
        "is_new": pa.bool_(),
    }
    schema = pa.schema([(name, kinds[name]) for name in Cause.__dataclass_fields__])
    rows = [
        {**asdict(cause), "top_tenants": [{"tenant": name, "burials": count} for name, count in cause.top_tenants]}
        for cause in causes
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "causes.parquet", compression="zstd")
    write_rows(folder / "causes.csv", Cause.__dataclass_fields__, map(asdict, causes))


def write_signatures(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows of `signatures_of`, all together and for each cause."""
    told = defaultdict(list)
    for row in rows:
        told[row["cause_id"]].append(
            {
                "id": row["replay_id"],
                "signature": row["replay_signature"],
                "cause": row["cause_id"],
                "count": row["burials"],
                "queues": row["queues"],
                "first_seen": row["first_seen"].isoformat(),
                "last_seen": row["last_seen"].isoformat(),
            }
        )
    _write_entries(folder / SIGNATURES, [entry for entries in told.values() for entry in entries])
    (folder / "signatures").mkdir()
    for cause, entries in told.items():
        _write_entries(folder / "signatures" / f"{cause}.json", entries)


def _write_entries(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    path.write_text(json.dumps({"version": _VERSION, "signatures": entries}, indent=1) + "\n", encoding="utf-8")


# More causes than a person reads: then the signatures do not do their work, and the rest is counted only.
CAUSES_MAX = 10_000
_SHOWN = 20
_COUNTED = ("settled_at", "outcome")
_BURIALS = "burials"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageOptions:
    place: HistoryLocation
    # The folder of the results; the last ones in it are compared with, and replaced.
    out: str
    # A file of marks, see `triage.marks`; "" for none.
    deploys: str = ""
    deploy_window: timedelta = timedelta(minutes=30)
    # Whether bodies of different shapes make different causes.
    by_shape: bool = True
    # Whether bodies are taken from dead letters where the history has none.
    with_dead_letters: bool = True
    # Whether the whole history is read, also if the last run has left a state.
    full_refresh: bool = False

    @property
    def resting(self) -> dict[str, str]:
        """What a state rests on, beside the place: nothing, as each run judges burials again."""
        return {"job": "triage"}


class Known(NamedTuple):
    """What of the history was read."""

    first: datetime
    last: datetime
    settled: int
    buried: int


class Found(NamedTuple):
    """What a run has found, and what it compares with."""

    known: Known
    causes: Sequence[Cause]
    signatures: Sequence[dict[str, Any]]
    last: Memory | None
    state: State | None

    @property
    def gone(self) -> dict[str, Remembered]:
        return gone(self.causes, self.last)


def run(spark: SparkSession, options: TriageOptions, progress: Progress) -> Outcome:
    settle_folder(options.out)
    marks = read_deploys(options.deploys) if options.deploys else []
    last = recall(Path(options.out), by_shape=options.by_shape)
    progress.step("Looking at what is new")
    start = begin(options.place, options.out, options.resting, full_refresh=options.full_refresh)
    progress.step("Reading the history")
    fresh = _known(read_history(spark, options.place, _COUNTED, part=start.part))
    known = _together(start, fresh)
    progress.rows(fresh.settled)
    progress.step(f"Finding the causes of {counted(known.buried, 'burial')}")
    new = burials_in(read_history(spark, options.place, part=start.part)).persist()
    burials = start.table(spark, _BURIALS, BURIED).union(new)
    judged = judged_burials(burials, _dead_letters(spark, options), by_shape=options.by_shape).persist()
    try:
        since = last.known_to if last else None
        rows = [row.asDict(recursive=True) for row in causes_of(judged, since=since).limit(CAUSES_MAX).collect()]
        parts = burials_over_time(judged, first=known.first, last=known.last).collect()
        signatures = [row.asDict() for row in signatures_of(judged).limit(10 * CAUSES_MAX).collect()]
        figures = {"first": known.first.isoformat(), "last": known.last.isoformat(), "buried": known.buried}
        state = start.grown_state(known.settled, {_BURIALS: start.grown(_BURIALS, new)}, figures)
    finally:
        judged.unpersist()
        new.unpersist()
    setting = Setting(known_from=known.first, last=last, marks=marks, within=options.deploy_window)
    buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * BUCKETS)
    for part in parts:
        buckets[part["cause_id"]][part["bucket"]] = part["burials"]
    causes = [cause_of(_in_utc(row), buckets[row["cause_id"]], setting) for row in rows]
    progress.step("Writing the report")
    found = Found(known, causes, [_in_utc(row) for row in signatures], last, state)
    _write(options, found)
    return _outcome(options, found, start, fresh.settled)


def _together(start: PreviousRun, fresh: Known) -> Known:
    """Add what was known before to what is new."""
    if start.known is None or not start.known.rows:
        return fresh
    said = start.known.figures
    first, last = (datetime.fromisoformat(said[name]) for name in ("first", "last"))
    if fresh.settled:
        first, last = min(first, fresh.first), max(last, fresh.last)
    return Known(first, last, start.known.rows + fresh.settled, said["buried"] + fresh.buried)


def _known(history: DataFrame) -> Known:
    row = history.agg(
        f.min("settled_at").alias("first"),
        f.max("settled_at").alias("last"),
        f.count("*").alias("settled"),
        f.count(f.when(f.col("outcome") == "buried", 1)).alias("buried"),
    ).first()
    assert row is not None
    nothing = datetime.fromtimestamp(0, UTC)
    return Known(_utc(row["first"] or nothing), _utc(row["last"] or nothing), row["settled"], row["buried"])


def _dead_letters(spark: SparkSession, options: TriageOptions) -> DataFrame | None:
    if not options.with_dead_letters:
        return None
    place = options.place
    if is_archive(place.where):
        where = f"{place.where}/{DEAD_LETTERS}"
        return read_table(spark, where, f"{ddl(LIVE)}, `id` STRING") if is_table(where) else None
    if not place.is_server:
        return None
    names = dead_letter_queues(described_queues(place))
    return read_live(spark, replace(place, queues=names, since="", until="")) if names else None


def _write(options: TriageOptions, found: Found) -> None:
    known = found.known
    kept = {
        cause.cause_id: Remembered(cause.signature, cause.burials, cause.first_seen, cause.last_seen)
        for cause in found.causes
    }
    told = report(
        found.causes,
        found.gone,
        known=(known.first, known.last),
        is_first=found.last is None,
        again=f"penstock pipeline replay {options.place.shown} --job NAME --signature {options.out}",
        foot=f"{counted(known.settled, 'settled message')} of {options.place.shown}",
    )
    with results(options.out) as folder:
        write_causes(folder, found.causes)
        write_signatures(folder, found.signatures)
        remember(folder, Memory(by_shape=options.by_shape, known_to=known.last, causes=kept))
        (folder / "report.html").write_text(told, encoding="utf-8")
        if found.state is not None:
            leave(folder, options.place, options.resting, found.state)


def _outcome(options: TriageOptions, found: Found, start: PreviousRun, rows_new: int) -> Outcome:
    known, causes, missing = found.known, found.causes, found.gone
    fresh = sum(cause.is_new for cause in causes)
    columns = ("cause", "burials", "since last run", "trend", "last seen", "queues", "deploy", "new", "signature")
    rows = [
        (
            cause.cause_id,
            cause.burials,
            cause.since_last,
            cause.trend,
            stamp(cause.last_seen),
            cut(", ".join(cause.queues), 30),
            cause.deploy,
            "new" if cause.is_new else None,
            cut(cause.signature, 90),
        )
        for cause in causes[:_SHOWN]
    ]
    compared = (
        "nothing to compare with yet"
        if found.last is None
        else f"{fresh:,} new and {len(missing):,} gone since the last run"
    )
    told = start.told(rows_new, is_kept=found.state is not None)
    settled = counted(known.settled, "settled message")
    buried = f"{known.buried:,} of {settled} {'was' if known.buried == 1 else 'were'} buried"
    return Outcome(
        sentence=f"{buried}, for {counted(len(causes), 'cause')}: {compared}. {told}",
        tables=[Table("Causes", columns, rows)] if rows else [],
        written=[
            f"{options.out}/{name}" for name in ("report.html", "causes.csv", "causes.parquet", "signatures.json")
        ],
        figures={
            "settled": known.settled,
            "buried": known.buried,
            "causes": len(causes),
            "new": fresh,
            "gone": len(missing),
            **start.counts(rows_new),
        },
    )


def _in_utc(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _utc(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _utc(at: datetime) -> datetime:
    """Spark gives times of this machine's zone that do not say so."""
    return at.astimezone(UTC)
