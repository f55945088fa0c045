"""The job `whatif`: the arrivals and handling times of a history, served by the core under other settings.

For each queue it tells the waits by tier as they happened, as the simulation has them under the present settings (the
baseline), and under each scenario. It changes nothing and keeps nothing but its folder, if it is given one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.pipeline.job import JobFailed, Outcome, Progress, Table, counted
from penstock.pipeline.locations import Place, read_history, with_id
from penstock.pipeline.queue_info import present_settings
from penstock.pipeline.reports.csv_files import write_rows
from penstock.pipeline.reports.figures import span
from penstock.pipeline.reports.folder import results, settle_folder
from penstock.pipeline.whatif.report import COLUMNS, in_order, report, told
from penstock.pipeline.whatif.scenarios import BASELINE, HAPPENED, Scenario

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000_000
# Mean waits of the baseline and of what happened that are further apart are told.
_FAR = 2
_NEAR_MS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOptions:
    place: Place
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


def run(spark: "SparkSession", options: WhatIfOptions, progress: Progress) -> Outcome:
    from penstock.pipeline.whatif import arrivals as transforms  # noqa: PLC0415 - it needs Spark.
    from penstock.pipeline.whatif.comparison import Plan  # noqa: PLC0415 - so does it numpy.

    scenarios = _named(options.scenarios)
    if options.out:
        settle_folder(options.out)
    progress.step("Reading the history")
    history = with_id(read_history(spark, options.place, transforms.COLUMNS))
    arrivals = transforms.arrivals(history).persist()
    try:
        counts = _counts(arrivals)
        wanted = sorted(queue for queue, count in counts.items() if count.received)
        if not wanted:
            raise JobFailed(f"{options.place.shown} has no message that was received: there is nothing to simulate")
        rows = arrivals.where("arrived_ms IS NOT NULL").where(arrivals["queue"].isin(wanted))
        if any(counts[queue].rows > options.rows for queue in wanted):
            rows = transforms.newest(rows, options.rows)
        plan = Plan(
            scenarios=scenarios,
            present=present_settings(spark, options.place),
            workers=options.workers,
            batch=options.batch,
        )
        progress.step(f"Simulating {counted(len(wanted), 'queue')} under {counted(len(scenarios), 'setting')}")
        found = [row.asDict() for row in transforms.simulated(rows, plan).collect()]
    finally:
        arrivals.unpersist()
    found = [dict(row) for row in in_order(found, [scenario.name for scenario in options.scenarios])]
    remarks = [*_remarks(options, counts, plan.present), *_doubts(found)]
    if options.out:
        with results(options.out) as folder:
            _write(folder, found, report(found, remarks=remarks, foot=f"from {options.place.shown}"))
    return _outcome(options, found, remarks)


def _named(scenarios: Sequence[Scenario]) -> dict[str, Scenario]:
    found = {BASELINE: Scenario(BASELINE)}
    for scenario in scenarios:
        if scenario.name in {*found, HAPPENED}:
            raise JobFailed(f"two scenarios are called {scenario.name!r}: give each a name of its own")
        found[scenario.name] = scenario
    return found


def _counts(arrivals: "DataFrame") -> dict[str, Count]:
    from pyspark.sql import functions as f  # noqa: PLC0415

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
                f"{queue}: {counted(count.unknown, 'was', 'were')} moved here nobody knows when, and left out."
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


def _write(folder: "Path", rows: Sequence[Mapping[str, Any]], page: str) -> None:
    write_rows(folder / "waits.csv", rows[0], rows)
    (folder / "report.html").write_text(page, encoding="utf-8")


def _outcome(options: WhatIfOptions, rows: Sequence[Mapping[str, Any]], remarks: Sequence[str]) -> Outcome:
    runs = {(row["queue"], row["scenario"]): row for row in rows if row["scenario"] != HAPPENED}
    simulated = sum(row["simulated"] for row in runs.values())
    taken_s = sum(row["simulated_s"] for row in runs.values())
    queues = list(dict.fromkeys(row["queue"] for row in rows))
    tables = [
        Table(f"Waits in {queue}", COLUMNS, [told(row) for row in rows if row["queue"] == queue]) for queue in queues
    ]
    rate = simulated / max(taken_s, 1e-9)
    sentence = f"Simulated {counted(simulated, 'message')} in {counted(len(runs), 'run')}, {rate:,.0f}/s on each core."
    return Outcome(
        sentence=" ".join([sentence, *remarks]),
        tables=tables,
        written=[f"{options.out}/{name}" for name in ("report.html", "waits.csv")] if options.out else [],
        figures={"simulated": simulated, "runs": len(runs), "messages_per_second": round(rate)},
    )
