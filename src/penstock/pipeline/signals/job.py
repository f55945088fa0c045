"""The job `signals`: how it went, from the history, as tables for programs and a page for people.

    new rows ─▶ steps ─┬─▶ facts ─▶ figures ─┐  levels
       (kept on the    ├─▶ pairs ────────────┼─▶ spans  ─▶ tables ─▶ Parquet, CSV, report.html
        disk)          └─▶ breaches ─────────┘  oldest
    state ─────────────────┘  by Spark          on the driver  ─▶ state

Rows never leave the executors: what the driver collects has one row for each window and kind of event. All the rest
is done with that, since to compile a query of Spark takes longer than to do it (decision 25). The results take the
place of those before as a whole, and do not have the time of the run: the same history gives the same files.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.incremental import PreviousRun, begin, leave
from penstock.pipeline.incremental import kept as kept_of
from penstock.pipeline.job import JobFailed, NoRows, Outcome, Progress, Table, counted
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.queue_info import parse, sharing
from penstock.pipeline.reports.folder import results, settle_folder, write_table
from penstock.pipeline.reports.html import share, span
from penstock.pipeline.signals.counts import Windows
from penstock.pipeline.signals.fairness_bounds import LATE, TOTALS, promises
from penstock.pipeline.signals.inputs import MOVED, SEEN, StateMismatch, instant_ms, read_input
from penstock.pipeline.signals.report import QUEUES_MAX, signals_page
from penstock.pipeline.signals.tables import golden_signals

# One row of figures for the head of the page, and no table of its own.
_RANGE = "range"
_BY_QUEUE = ("queue_windows", "tier_windows", "tenant_windows")


def write_files(folder: Path, tables: Mapping[str, pyarrow.Table], about: Mapping[str, Any]) -> None:
    for name, table in tables.items():
        if name != _RANGE:
            pyarrow.parquet.write_table(table, folder / f"{name}.parquet", compression="zstd")
            write_table(folder / f"{name}.csv", table)
    (folder / "about.json").write_text(json.dumps(about, indent=2) + "\n")
    (folder / "report.html").write_text(signals_page(_shown(tables), about))


def _shown(tables: Mapping[str, pyarrow.Table]) -> dict[str, list[dict[str, Any]]]:
    """What the page shows: of windows only those of the busiest queues, as a page of a thousand is too long to read."""
    busiest = tables["queues"].sort_by([("settled", "descending"), ("queue", "ascending")]).column("queue")
    chosen = busiest.slice(0, QUEUES_MAX).combine_chunks()
    shown = {}
    for name, table in tables.items():
        rows = table.filter(pyarrow.compute.is_in(table.column("queue"), chosen)) if name in _BY_QUEUE else table
        shown[name] = rows.to_pylist()
    return shown


SIZES_MS = {"1s": 1_000, "10s": 10_000, "1m": 60_000, "5m": 300_000, "1h": 3_600_000, "1d": 86_400_000}
# As many as are chosen by default, and as many as a user may ask for.
WINDOWS_GOOD, WINDOWS_MAX = 500, 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsOptions:
    place: HistoryLocation
    out: str
    # One of `SIZES_MS`; empty to choose by the range.
    window: str = ""
    # `group`, or `attribute:<name>`.
    tenant: str = "group"
    tenants: int = 10
    # For all queues, as in 16,8,4,2,1; empty for those of the archive, or of a new queue.
    weights: str = ""
    # Whether the whole history is read, also if the last run has left a state.
    full_refresh: bool = False

    @property
    def resting(self) -> dict[str, Any]:
        """What a state rests on, beside the place."""
        chosen = {"window": self.window, "tenant": self.tenant, "tenants": self.tenants, "weights": self.weights}
        return {"job": "signals", **chosen}


def run(spark: SparkSession, options: SignalsOptions, progress: Progress) -> Outcome:
    _check(options)
    settle_folder(options.out)
    progress.step("Looking at what is new")
    start = begin(options.place, options.out, options.resting, full_refresh=options.full_refresh)
    try:
        return _run(spark, options, progress, start)
    except StateMismatch as unfit:
        again = begin(options.place, options.out, options.resting, full_refresh=True)
        return _run(spark, options, progress, replace(again, reason=str(unfit)))


def _run(spark: SparkSession, options: SignalsOptions, progress: Progress, start: PreviousRun) -> Outcome:
    with ExitStack() as kept:

        def keep(frame: DataFrame) -> DataFrame:
            # Not `persist`: what is made of it would be planned again from the first row on, in full, each time.
            frame = frame.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
            kept.callback(frame.unpersist)
            return frame

        progress.step("Reading history")
        given = read_input(spark, options.place, options.tenant, start, keep)
        if not given.seen:
            raise NoRows(f"{options.place.shown} has no settled messages of this range and these queues: choose others")
        rows_new = given.rows - start.rows_known
        progress.rows(rows_new, total=rows_new)
        windows = _windows(options, given.seen)
        known = sharing(options.place, options.weights)
        promised = {row["queue"]: known[row["queue"]] for row in given.seen}
        # What sums and breaches rest on beside the rows; both can be told only when rows were read.
        rests_on = {
            "window": [windows.size_ms, windows.first],
            "weights": {queue: [*found.weights, found.is_strict] for queue, found in promised.items()},
            "has_tenants": given.has_tenants,
        }
        _check_fits(start, rests_on)
        progress.step("Counting")
        found, tables = golden_signals(spark, given, windows, options.tenants, keep)
        progress.step("Looking for breaches")
        late = promises(spark, given, windows, promised, keep)
        found |= {"bounds": late.bounds, "breaches": late.breaches}
        tables |= {
            SEEN: given.plain_table(),
            MOVED: start.grown(MOVED, given.moved),
            TOTALS: late.totals,
            LATE: kept_of(late.late),
        }
        state = start.grown_state(given.rows, tables, rests_on)
    progress.step("Writing")
    about = _about(options, windows, given.rows)
    with results(options.out) as folder:
        write_files(folder, found, about)
        if state is not None:
            leave(folder, options.place, options.resting, state)
    again = f" {late.rows_again:,} of those were read again." if late.rows_again else ""
    told = start.told(rows_new, is_kept=state is not None, more=again)
    return _outcome(options, found, about, told, {**start.counts(rows_new), "rows_again": late.rows_again})


def _check_fits(start: PreviousRun, now: Mapping[str, Any]) -> None:
    if start.known is None:
        return
    was = start.known.figures
    if was["window"] != now["window"]:
        raise StateMismatch("the windows are not what they were then")
    if was["has_tenants"] != now["has_tenants"]:
        raise StateMismatch("there were no tenants then")
    for queue, weights in was["weights"].items():
        if now["weights"][queue] != weights:
            raise StateMismatch(f"the weights of {queue} are not what they were then")


def choose_windows(options: SignalsOptions, *, since_ms: int, until_ms: int) -> Windows:
    """The windows of the range: as small as gives a plot that can be read, unless the user chose."""
    if options.place.since:
        since_ms = max(since_ms, instant_ms(options.place.since))

    def windows(size_ms: int) -> Windows:
        return Windows(size_ms, since_ms // size_ms, max(until_ms, since_ms) // size_ms)

    if not options.window:
        every = [windows(size_ms) for size_ms in SIZES_MS.values()]
        return next((each for each in every if each.count <= WINDOWS_GOOD), every[-1])
    chosen = windows(SIZES_MS[options.window])
    if chosen.count > WINDOWS_MAX:
        raise JobFailed(
            f"--window {options.window} cuts this history into {chosen.count:,} windows; {WINDOWS_MAX:,} are the most. "
            "Choose a longer one, or a range with --since and --until."
        )
    return chosen


def _check(options: SignalsOptions) -> None:
    if options.window and options.window not in SIZES_MS:
        raise JobFailed(f"--window is {options.window!r}; it is one of {', '.join(SIZES_MS)}")
    kind, _, name = options.tenant.partition(":")
    if options.tenant != "group" and (kind != "attribute" or not name or set("'\"\\") & set(name)):
        raise JobFailed(f"--tenant is {options.tenant!r}; it is group, or attribute:<name> without quotes in the name")
    if not 1 <= options.tenants <= 100:
        raise JobFailed(f"--tenants is {options.tenants}; it is between 1 and 100")
    if options.weights:
        parse(options.weights)
    for text in (options.place.since, options.place.until):
        if text:
            instant_ms(text)


def _windows(options: SignalsOptions, seen: Sequence[Mapping[str, Any]]) -> Windows:
    """Each queue begins with what came first; if that is not known, with what was received or settled first."""
    firsts = []
    for queue in {row["queue"] for row in seen}:
        of_queue = [row for row in seen if row["queue"] == queue]
        known = ([row[name] for row in of_queue if row[name] is not None] for name in ("came", "received", "settled"))
        firsts.append(min(next(filter(None, known))))
    return choose_windows(options, since_ms=min(firsts), until_ms=max(row["last_ms"] for row in seen))


def _about(options: SignalsOptions, windows: Windows, rows: int) -> dict[str, Any]:
    ends = (windows.first * windows.size_ms, (windows.last + 1) * windows.size_ms)
    since, until = (datetime.fromtimestamp(each / 1_000, UTC).isoformat().replace("+00:00", "Z") for each in ends)
    return {
        "version": 1,
        "source": options.place.shown,
        "rows": rows,
        "from": since,
        "to": until,
        "window_s": windows.size_ms / 1_000,
        "windows": windows.count,
        "tenant": options.tenant,
    }


def _outcome(
    options: SignalsOptions, found: Mapping[str, Any], about: Mapping[str, Any], told: str, counts: Mapping[str, int]
) -> Outcome:
    bounds_of, starved = found["bounds"].to_pylist(), found["starvation"].column("queue").to_pylist()
    late = sum(row["breaches"] for row in bounds_of)
    rows: list[list[str | int | float | None]] = [
        [
            row["queue"],
            row["settled"],
            row["settled_per_s"],
            span(row["wait_ms_p50"]),
            span(row["wait_ms_p99"]),
            span(row["handling_ms_p99"]),
            row["retries"],
            share(row["dead_letter_rate"]),
            row["depth_max"],
            sum(each["breaches"] for each in bounds_of if each["queue"] == row["queue"]),
            starved.count(row["queue"]),
        ]
        for row in found["queues"].to_pylist()
    ]
    columns = (
        "queue",
        "settled",
        "per s",
        "wait p50",
        "wait p99",
        "handling p99",
        "retries",
        "dead letters",
        "depth max",
    )
    return Outcome(
        sentence=f"{counted(about['rows'], 'settled message')} from {about['from']} to {about['to']}, "
        f"in {counted(about['windows'], 'window')} of {span(about['window_s'] * 1_000)}: "
        f"{late:,} waited longer than the bound, {counted(len(starved), 'window')} starved a tier. {told}",
        tables=[Table("Golden signals", (*columns, "breaches", "starved"), rows)],
        written=[f"{options.out}/report.html", options.out],
        figures={
            "rows": about["rows"],
            "windows": about["windows"],
            "breaches": late,
            "starved": len(starved),
            **counts,
        },
    )
