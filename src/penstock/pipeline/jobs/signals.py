"""The job `signals`: how it went, from the history, as tables for programs and a page for people.

    rows ─▶ steps ─┬─▶ counts ──▶ levels ─┐
       (kept on    ├─▶ classes ─▶ spans ──┼─▶ tables ─▶ Parquet, CSV, report.html
        the disk)  ├─▶ oldest ────────────┤
                   └─▶ breaches ──────────┘

Rows never leave the executors: what the driver collects has one row for each window. The results
take the place of those before as a whole, and say nothing of when they were made: the same history
gives the same files.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import functions as f

from penstock.pipeline.jobs.signals_files import write
from penstock.pipeline.jobs.weights import Sharing, frame, sharing
from penstock.pipeline.outcome import JobFailed, Outcome, Progress, Table
from penstock.pipeline.places import Place, read_history
from penstock.pipeline.reports.figures import share, span
from penstock.pipeline.reports.folder import results, settle_folder
from penstock.pipeline.transforms import signals as tables
from penstock.pipeline.transforms import signals_bounds as bounds
from penstock.pipeline.transforms import signals_counts as counting
from penstock.pipeline.transforms import signals_spans as spans
from penstock.pipeline.transforms import signals_steps as stepping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZES_MS = {"1s": 1_000, "10s": 10_000, "1m": 60_000, "5m": 300_000, "1h": 3_600_000, "1d": 86_400_000}
# As many as are chosen by default, and as many as anybody may ask for.
WINDOWS_GOOD, WINDOWS_MAX = 500, 20_000
WORST = 20
_BOUNDS = pyarrow.schema(
    [
        ("queue", pyarrow.string()),
        ("tier", pyarrow.int32()),
        ("weight", pyarrow.int32()),
        ("weights_total", pyarrow.int32()),
        ("weights_from", pyarrow.string()),
        ("is_strict", pyarrow.bool_()),
        ("checked", pyarrow.int64()),
        ("breaches", pyarrow.int64()),
        ("times_bound_max", pyarrow.float64()),
    ]
)
# Into so many buckets the range is cut for running sums, so that no queue is sorted as a whole.
_BUCKETS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsOptions:
    place: Place
    out: str
    # One of `SIZES_MS`; empty to choose by the range.
    window: str = ""
    # `group`, or `attribute:<name>`.
    tenant: str = "group"
    tenants: int = 10
    # For all queues, as in 16,8,4,2,1; empty for those of the archive, or of a new queue.
    weights: str = ""


Tables = dict[str, "pyarrow.Table"]


def run(spark: "SparkSession", options: SignalsOptions, progress: Progress) -> Outcome:
    _check(options)
    settle_folder(options.out)
    with ExitStack() as kept:

        def keep(frame: "DataFrame") -> "DataFrame":
            # Not `persist`: what is made of it would be planned anew from the first row on, in full, each time.
            frame = frame.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
            kept.callback(frame.unpersist)
            return frame

        progress.step("Reading history")
        given = keep(read_steps(spark, options))
        seen = _seen(given, options)
        rows = sum(row["rows"] for row in seen)
        progress.rows(rows, total=rows)
        windows = choose_windows(
            options, since_ms=min(row["first_ms"] for row in seen), until_ms=max(row["last_ms"] for row in seen)
        )
        progress.step("Counting")
        found = _golden(spark, given, options, windows, keep)
        progress.step("Looking for breaches")
        known = sharing(spark, options.place, options.weights)
        promised = {row["queue"]: known[row["queue"]] for row in seen}
        _promises(spark, given, windows, promised, found, keep)
    progress.step("Writing")
    about = _about(options, windows, rows)
    with results(options.out) as folder:
        write(folder, found, about)
    return _outcome(options, found, about)


def choose_windows(options: SignalsOptions, *, since_ms: int, until_ms: int) -> counting.Windows:
    """The windows of the range: as small as gives a plot that can be read, unless somebody chose."""
    if options.place.since:
        since_ms = max(since_ms, _ms(options.place.since))

    def windows(size_ms: int) -> counting.Windows:
        return counting.Windows(size_ms, since_ms // size_ms, max(until_ms, since_ms) // size_ms)

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
    for text in (options.place.since, options.place.until):
        if text:
            _ms(text)


def read_steps(spark: "SparkSession", options: SignalsOptions) -> "DataFrame":
    """What the messages of the chosen queues did."""
    # A message comes to a queue from another one, so all are read, and then those that were asked for are kept.
    rows = read_history(spark, replace(options.place, queues=()))
    given = stepping.steps(rows, stepping.tenant_of(options.tenant))
    return given.where(f.col("queue").isin(list(options.place.queues))) if options.place.queues else given


def _seen(given: "DataFrame", options: SignalsOptions) -> list[dict[str, Any]]:
    first_ms = f.coalesce(f.min("came_ms"), f.min("received_ms"), f.min("settled_ms"))
    figures = (f.count("*").alias("rows"), first_ms.alias("first_ms"), f.max("settled_ms").alias("last_ms"))
    seen = [row.asDict() for row in given.groupBy("queue").agg(*figures).collect()]
    if not seen:
        raise JobFailed(f"{options.place.shown} has no settled messages of this range and these queues: choose others")
    return seen


def _golden(
    spark: "SparkSession",
    given: "DataFrame",
    options: SignalsOptions,
    windows: counting.Windows,
    keep: "Callable[[DataFrame], DataFrame]",
) -> Tables:
    count = options.tenants
    top_rows = [tuple(row) for row in stepping.top_tenants(given, count).collect()]
    top = spark.createDataFrame(top_rows, "queue STRING, tenant STRING, tenant_rank INT, messages BIGINT")
    ranked = stepping.with_rank(given, top, count)
    counted = keep(counting.counts(ranked, windows))
    tiers = keep(counting.filled(counted, "tier", windows))
    queues = counting.together(tiers)
    classed = keep(spans.classes(ranked, "tier", windows))
    ages = keep(counting.oldest(given, windows))
    oldest = ages.groupBy("queue", "window").agg(f.min("oldest_ms").alias("oldest_ms"))

    def whole(levels: "DataFrame", classed: "DataFrame", *keys: str) -> "DataFrame":
        return tables.of_range(levels, spans.percentiles(classed, *keys), keys, windows)

    def by_window(levels: "DataFrame", classed: "DataFrame", *keys: str) -> "DataFrame":
        return tables.of_windows(levels, spans.percentiles(classed, *keys, "window"), keys, windows)

    found = {
        "range": spans.percentiles(classed),
        "queues": whole(queues, classed, "queue"),
        "queue_windows": by_window(queues.join(oldest, ["queue", "window"], "left"), classed, "queue"),
        "tiers": whole(tiers, classed, "queue", "tier"),
        "tier_windows": by_window(tiers.join(ages, ["queue", "tier", "window"], "left"), classed, "queue", "tier"),
        "starvation": bounds.starved(tiers, queues).select(
            "queue",
            "tier",
            f.timestamp_millis(f.col("window") * windows.size_ms).alias("window_start"),
            "waiting",
            "others_received",
        ),
    }
    if top_rows:
        tenants = counting.filled(counted, "tenant_rank", windows)
        of_tenants = keep(spans.classes(ranked, "tenant_rank", windows))
        for name, made in (("tenants", whole), ("tenant_windows", by_window)):
            table = made(tenants, of_tenants, "queue", "tenant_rank")
            found[name] = tables.with_tenant_names(table, top, count)
    return {name: _collected(frame) for name, frame in found.items()}


def _promises(
    spark: "SparkSession",
    given: "DataFrame",
    windows: counting.Windows,
    promised: Mapping[str, Sharing],
    found: Tables,
    keep: "Callable[[DataFrame], DataFrame]",
) -> None:
    """Add the tables `bounds` and `breaches`."""
    bucket_ms = max(1_000, windows.size_ms * windows.count // _BUCKETS)
    late = keep(bounds.breaches(given, frame(spark, promised), bucket_ms))
    excess = (f.col("leases") / f.col("bound")).alias("times_bound")
    by_tier = late.groupBy("queue", "tier").agg(f.count("*").alias("breaches"), f.max(excess).alias("worst"))
    told = {(row.queue, row.tier): row for row in by_tier.collect()}
    rows = [
        {
            "queue": row.queue,
            "tier": row.tier,
            "weight": promised[row.queue].weights[row.tier],
            "weights_total": sum(promised[row.queue].weights),
            "weights_from": promised[row.queue].source,
            "is_strict": promised[row.queue].is_strict,
            "checked": 0 if promised[row.queue].is_strict else row.checked,
            "breaches": told[row.queue, row.tier].breaches if (row.queue, row.tier) in told else 0,
            "times_bound_max": told[row.queue, row.tier].worst if (row.queue, row.tier) in told else None,
        }
        for row in sorted(bounds.checked(given).collect())
    ]
    found["bounds"] = pyarrow.Table.from_pylist(rows, schema=_BOUNDS)
    worst = late.orderBy(f.desc(excess), "queue", "queue_id", "key").limit(WORST)
    ids = given.select("queue_id", "key", "id")
    named = f.broadcast(worst).join(ids, ["queue_id", "key"]) if told else worst.withColumn("id", f.lit(""))
    came, received = (
        f.timestamp_millis("came_ms").alias("came_at"),
        f.timestamp_millis("received_ms").alias("received_at"),
    )
    chosen = named.select("queue", "tier", "id", came, received, "ahead", "leases", "bound", excess)
    order = [("times_bound", "descending"), ("queue", "ascending"), ("id", "ascending")]
    found["breaches"] = chosen.toArrow().sort_by(order)


def _collected(frame: "DataFrame") -> "pyarrow.Table":
    """The rows in the order of their keys: the same rows are the same file."""
    keys = [name for name in ("queue", "tier", "tenant_rank", "window_start") if name in frame.columns]
    return frame.toArrow().sort_by([(key, "ascending") for key in keys]) if keys else frame.toArrow()


def _about(options: SignalsOptions, windows: counting.Windows, rows: int) -> dict[str, Any]:
    ends = (windows.first * windows.size_ms, (windows.last + 1) * windows.size_ms)
    since, until = (datetime.fromtimestamp(each / 1_000, UTC).isoformat() for each in ends)
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


def _outcome(options: SignalsOptions, found: Tables, about: Mapping[str, Any]) -> Outcome:
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
        sentence=f"{about['rows']:,} settled messages from {about['from']} to {about['to']}, "
        f"in {about['windows']:,} windows of {span(about['window_s'] * 1_000)}: "
        f"{late:,} waited longer than the bound, {len(starved):,} windows starved a tier.",
        tables=[Table("Golden signals", (*columns, "breaches", "starved"), rows)],
        written=[f"{options.out}/report.html", options.out],
        figures={"rows": about["rows"], "windows": about["windows"], "breaches": late, "starved": len(starved)},
    )


def _ms(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise JobFailed(f"{text!r} is no time: write it as 2026-03-01T12:00:00Z") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)
