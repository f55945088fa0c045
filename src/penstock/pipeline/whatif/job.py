"""The job `whatif`: the arrivals and handling times of a history, served by the core under other settings.

For each queue it tells the waits by tier as they happened, as the simulation has them under the present settings (the
baseline), and under each scenario. It changes nothing and keeps nothing but its folder, if it is given one.

From a history the simulation needs when each message came, what it cost, and how often:

    arrived    a message came to its queue when it was sent, or when it left the queue it was moved from
    handling   from its last receipt to its end; each of its attempts is taken to have cost as much
    attempts   how often it was received in this queue
    rest       between two attempts: the time between its receipts, less handling, less what it waited at first

A message that was moved here from a queue that is not in the history is left out: its arrival is not known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from penstock.contract.limits import LEASE_MS_MAX
from penstock.contract.messages import PRIORITIES
from penstock.pipeline.job import JobFailed, Outcome, Progress, Table, counted
from penstock.pipeline.locations import HistoryLocation, read_history, with_id
from penstock.pipeline.queue_info import present_settings
from penstock.pipeline.reports.folder import results, settle_folder, write_rows
from penstock.pipeline.reports.html import Section, grid, note, page, share, span, table
from penstock.pipeline.reports.plots import Bar, bars
from penstock.pipeline.whatif.simulation import BASELINE, HAPPENED, INPUT, OUTPUT, Plan, Scenario, compare

# A lease cannot be longer.
HANDLING_MS_MAX = LEASE_MS_MAX - 1
_LANE_BITS = 7
_WANTED = [part.split()[0] for part in INPUT.split(", ") if not part.startswith("scenario ")]


# What `arrivals` needs of a history, beside `id`: no bodies.
HISTORY_COLUMNS = (
    *("queue", "queue_id", "first_queue", "sent_tier", "number", "key", "group", "shard", "offset", "delivery_count"),
    *("sent_at", "first_received_at", "last_received_at", "settled_at"),
)


def arrivals_of(history: DataFrame) -> DataFrame:
    """Return the messages of each queue with the columns of `comparison.INPUT`; `arrived_ms` may be null."""
    moves = Window.partitionBy("id").orderBy("settled_at", "shard", "offset")
    is_home = f.col("first_queue") == f.col("queue_id")
    came_at = f.coalesce(f.lag("settled_at").over(moves), f.when(is_home, f.col("sent_at")))
    before = f.coalesce(f.lag("delivery_count").over(moves), f.lit(0))
    known = history.withColumns(
        {"arrived_ms": _ms(came_at), "attempts": f.greatest(f.col("delivery_count") - before, f.lit(1)).cast("int")}
    ).withColumns(
        {
            "lane": f.col("key").bitwiseAND(_LANE_BITS).cast("tinyint"),
            "received_ms": _ms(f.col("first_received_at")),
            "last_ms": _ms(f.col("last_received_at")),
            "settled_ms": _ms(f.col("settled_at")),
            "tenant": f.col("group"),
        }
    )
    handling = f.col("settled_ms") - f.col("last_ms")
    known = known.withColumn(
        "handling_ms", f.when(handling.isNotNull(), f.least(f.greatest(handling, f.lit(0)), f.lit(HANDLING_MS_MAX)))
    )
    gap = (f.col("last_ms") - f.col("received_ms")) / (f.col("attempts") - 1)
    rest = gap - f.col("handling_ms") - (f.col("received_ms") - f.col("arrived_ms"))
    rest = f.when(f.col("attempts") > 1, f.greatest(f.coalesce(rest, f.lit(0)), f.lit(0))).otherwise(f.lit(0))
    return known.withColumn("rest_ms", rest.cast("bigint")).select(*_WANTED)


def newest(rows: DataFrame, count: int) -> DataFrame:
    """Keep so many messages of each queue, those that came last."""
    last = Window.partitionBy("queue").orderBy(f.desc("arrived_ms"), f.desc("key"))
    return rows.withColumn("_row", f.row_number().over(last)).where(f.col("_row") <= count).drop("_row")


def simulated(rows: DataFrame, plan: Plan) -> DataFrame:
    """Return the waits of each queue, scenario and tier; queues and scenarios run beside each other."""

    def one(table: pyarrow.Table) -> pyarrow.Table:
        return compare(table, plan)

    names = f.array(*[f.lit(name) for name in plan.scenarios])
    each = rows.withColumn("scenario", f.explode(names))
    return each.groupBy("queue", "scenario").applyInArrow(one, schema=OUTPUT)


def _ms(at: Column) -> Column:
    return f.unix_millis(at)


TABLE_COLUMNS = ("priority", "scenario", "messages", "p50", "p90", "p99", "max", "mean", "within bound", "workers")

Row = Mapping[str, Any]


def in_order(rows: Iterable[Row], names: Sequence[str]) -> list[Row]:
    """By queue and tier; in a tier what happened, then the baseline, then the scenarios as they were named."""
    places = {name: place for place, name in enumerate((HAPPENED, BASELINE, *names))}
    return sorted(rows, key=lambda row: (row["queue"], row["tier"], places.get(row["scenario"], len(places))))


def told(row: Row) -> tuple[str | int | None, ...]:
    """A row as people read it."""
    spans = (span(row[f"wait_ms_{name}"]) for name in ("p50", "p90", "p99", "max", "mean"))
    workers = None if row["scenario"] == HAPPENED else row["workers"]
    return (PRIORITIES[row["tier"]], row["scenario"], row["messages"], *spans, share(row["bound_share"]), workers)


def report(rows: Sequence[Row], *, remarks: Sequence[str], foot: str) -> str:
    """Return the page, as HTML; rows are `in_order`."""
    sections = [
        Section(queue, [grid(_plots(each)), table(TABLE_COLUMNS, [told(row) for row in each])])
        for queue, each in ((queue, list(part)) for queue, part in groupby(rows, key=lambda row: row["queue"]))
    ]
    lead = (
        "How long messages waited, beside how long they would have. The baseline is the simulation of things as they "
        "are: by as much as it differs from what happened, the scenarios may be wrong too."
    )
    said = [Section("To know", [note(remark) for remark in remarks])] if remarks else []
    return page("What if", lead=lead, sections=[*sections, *said], foot=foot)


def _plots(rows: Sequence[Row]) -> list[str]:
    found = []
    for name in ("p50", "p99"):
        for tier, part in groupby(rows, key=lambda row: row["tier"]):
            each = [Bar(row["scenario"], row[f"wait_ms_{name}"], colour=row["scenario"] != HAPPENED) for row in part]
            found.append(bars(f"{PRIORITIES[tier]}: wait, {name}", each, form=span))
    return found


ROWS = 1_000_000
# Mean waits of the baseline and of what happened that are further apart are reported.
_FAR = 2
_NEAR_MS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOptions:
    place: HistoryLocation
    scenarios: Sequence[Scenario]
    # 0 to find out from the history.
    workers: int = 0
    # How many messages a worker takes at once.
    batch: int = 1
    # At most so many messages of each queue, the newest.
    rows: int = ROWS
    # A folder for the results; "" for none.
    out: str = ""


@dataclass(frozen=True, slots=True)
class Count:
    """What there is of a queue."""

    rows: int
    received: int
    unknown: int


def run(spark: SparkSession, options: WhatIfOptions, progress: Progress) -> Outcome:
    scenarios = _named(options.scenarios)
    if options.out:
        settle_folder(options.out)
    progress.step("Reading the history")
    history = with_id(read_history(spark, options.place, HISTORY_COLUMNS))
    arrivals = arrivals_of(history).persist()
    try:
        counts = _counts(arrivals)
        wanted = sorted(queue for queue, count in counts.items() if count.received)
        if not wanted:
            raise JobFailed(f"{options.place.shown} has no message that was received: there is nothing to simulate")
        rows = arrivals.where("arrived_ms IS NOT NULL").where(arrivals["queue"].isin(wanted))
        if any(counts[queue].rows > options.rows for queue in wanted):
            rows = newest(rows, options.rows)
        plan = Plan(
            scenarios=scenarios,
            present=present_settings(options.place),
            workers=options.workers,
            batch=options.batch,
        )
        progress.step(f"Simulating {counted(len(wanted), 'queue')} under {counted(len(scenarios), 'setting')}")
        found = [row.asDict() for row in simulated(rows, plan).collect()]
    finally:
        arrivals.unpersist()
    found = [dict(row) for row in in_order(found, [scenario.name for scenario in options.scenarios])]
    remarks = [*_remarks(options, counts, plan.present), *_doubts(found)]
    if options.out:
        with results(options.out) as folder:
            write_rows(folder / "waits.csv", found[0], found)
            page_text = report(found, remarks=remarks, foot=f"from {options.place.shown}")
            (folder / "report.html").write_text(page_text, encoding="utf-8")
    return _outcome(options, found, remarks)


def _named(scenarios: Sequence[Scenario]) -> dict[str, Scenario]:
    found = {BASELINE: Scenario(BASELINE)}
    for scenario in scenarios:
        if scenario.name in {*found, HAPPENED}:
            raise JobFailed(f"two scenarios are called {scenario.name!r}: give each a name of its own")
        found[scenario.name] = scenario
    return found


def _counts(arrivals: DataFrame) -> dict[str, Count]:
    is_known = f.col("arrived_ms").isNotNull()
    rows = arrivals.groupBy("queue").agg(
        f.count(f.when(is_known, 1)).alias("rows"),
        f.count(f.when(is_known, f.col("received_ms"))).alias("received"),
        f.count(f.when(~is_known, 1)).alias("unknown"),
    )
    return {row["queue"]: Count(row["rows"], row["received"], row["unknown"]) for row in rows.collect()}


def _remarks(options: WhatIfOptions, counts: Mapping[str, Count], present: Mapping[str, object]) -> list[str]:
    remarks = []
    for queue, count in sorted(counts.items()):
        if not count.received:
            remarks.append(f"{queue}: nothing was received, so nothing is simulated.")
            continue
        if count.rows > options.rows:
            remarks.append(f"{queue}: the newest {options.rows:,} of {count.rows:,} messages; --rows takes more.")
        if count.unknown:
            remarks.append(
                f"{queue}: {counted(count.unknown, 'was', 'were')} moved here at an unknown time, and left out."
            )
        if queue not in present:
            remarks.append(f"{queue}: its settings are not known; the baseline has those of a new queue.")
    if not options.workers:
        remarks.append("Workers are as many as were handling messages at once at most; --workers says otherwise.")
    return remarks


def _doubts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the queues whose baseline is so far from what happened that no scenario of theirs says anything."""
    waited: dict[tuple[str, str], float] = {}
    for row in rows:
        place = row["queue"], row["scenario"]
        waited[place] = waited.get(place, 0.0) + row["messages"] * row["wait_ms_mean"]
    messages = {row["queue"]: 0 for row in rows}
    for row in rows:
        messages[row["queue"]] += row["messages"] if row["scenario"] == HAPPENED else 0
    remarks = []
    for queue, count in messages.items():
        happened, baseline = waited[queue, HAPPENED] / count, waited[queue, BASELINE] / count
        if max(happened, baseline) > _FAR * min(happened, baseline) + _NEAR_MS:
            waits = f"messages waited {span(happened)} on average, in the baseline {span(baseline)}"
            advice = "say how many --workers there were, and how many messages each took (--batch)"
            remarks.append(f"{queue}: do not believe these scenarios: {waits}; {advice}.")
    return remarks


def _outcome(options: WhatIfOptions, rows: Sequence[Mapping[str, Any]], remarks: Sequence[str]) -> Outcome:
    runs = {(row["queue"], row["scenario"]): row for row in rows if row["scenario"] != HAPPENED}
    simulated = sum(row["simulated"] for row in runs.values())
    taken_s = sum(row["simulated_s"] for row in runs.values())
    queues = list(dict.fromkeys(row["queue"] for row in rows))
    tables = [
        Table(f"Waits in {queue}", TABLE_COLUMNS, [told(row) for row in rows if row["queue"] == queue])
        for queue in queues
    ]
    rate = simulated / max(taken_s, 1e-9)
    sentence = f"Simulated {counted(simulated, 'message')} in {counted(len(runs), 'run')}, {rate:,.0f}/s on each core."
    return Outcome(
        sentence=" ".join([sentence, *remarks]),
        tables=tables,
        written=[f"{options.out}/{name}" for name in ("report.html", "waits.csv")] if options.out else [],
        figures={"simulated": simulated, "runs": len(runs), "messages_per_second": round(rate)},
    )
