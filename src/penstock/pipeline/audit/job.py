"""The audit: looks at every queue, reads the history up to that look, and compares the books.

look       what is in each queue, and up to where the history tells of what was settled before
history    an archive or a data folder as far as it goes, then the server, up to there
books      every number is live, or settled once (`ledger.py`)
"""

from dataclasses import dataclass

import pyarrow.parquet  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.audit import inputs, ledger
from penstock.pipeline.job import JobFailed, Outcome, Progress, Table, counted
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.reports.folder import results, settle_folder, write_table

SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    # The server whose queues are audited; `queues` and `since` of it say which, and sent from when on.
    server: HistoryLocation
    # An archive or a data folder with history that the server may have dropped; empty for none.
    history: str = ""
    # A list of ids that a producer was answered: Parquet or CSV with a column `id`, or a text of one id a line.
    sent: str = ""
    # Whether that list has everything that was sent to the audited queues.
    is_complete: bool = False
    # A folder for what is wrong; empty for none.
    out: str = ""


def run(spark: SparkSession, options: AuditOptions, progress: Progress) -> Outcome:
    if options.is_complete and not options.sent:
        raise JobFailed("complete is said of a list of ids; give it with --sent")
    # A list that cannot be read, and a folder that cannot take results, are refused before the work, not after it.
    if options.out:
        settle_folder(options.out)
    sent = inputs.sent_ids(spark, options.sent) if options.sent else None
    names, silent, kept = inputs.ask_server(options.server)
    progress.step(f"Looking at {counted(len(names), 'queue')}")
    seen = inputs.look(spark, options.server, names)
    live, lanes = seen.where("lane IS NULL"), inputs.lanes(seen)
    progress.step("Reading the history")
    # Only a database skips numbers, and a server has all its queues in databases or none.
    skipping = {each.shard for each in lanes if each.may_skip}
    settled = inputs.settled(
        spark, options.server, options.history, kept, inputs.ends(seen, kept), is_database=bool(skipping)
    ).persist()
    # A queue that was made since the look is not judged; one that is gone is, by its history alone.
    lanes += inputs.deleted(settled, {each.queue_id for each in lanes} | inputs.queue_ids(options.server), skipping)
    begins = inputs.begins(settled, kept, options.server.since)
    progress.step("Comparing the books")
    found = ledger.queue_visits(live, settled).persist()
    lane_rows = spark.createDataFrame(inputs.bounds(lanes, begins, silent), ledger.LANES)
    # A handful of rows, which everything is joined with.
    started = ledger.with_start(lane_rows, found)
    bounds = spark.createDataFrame(started.collect(), started.schema)
    missing = ledger.gaps(bounds, found).persist()
    # A message that left for a queue that is not looked at, or keeps no history, may have arrived there.
    wrong = ledger.faults(bounds, found, missing, is_silent=bool(silent or options.server.queues))
    if sent is not None:
        more = ledger.unknown_to_producers(bounds, found, sent, is_complete=options.is_complete)
        wrong = wrong.unionByName(more).dropDuplicates(["queue_id", "key", "id", "fault"])
    wrong = wrong.persist()
    outcome = _outcome(ledger.summary(bounds, found, missing, wrong), wrong, options.out)
    for each in (wrong, missing, found, settled):
        each.unpersist()
    return outcome


def _outcome(summary: DataFrame, wrong: DataFrame, out: str) -> Outcome:
    rows = [row.asDict() for row in summary.collect()]
    columns = summary.columns
    figures = {name: sum(row[name] for row in rows) for name in columns[2:]}
    bad = figures["lost"] + figures["doubled"] + figures["phantom"]
    tables = [Table("Queues", columns, [[row[name] for name in columns] for row in rows])]
    if bad:
        shown = wrong.orderBy("fault", "queue", "key").limit(SHOWN).collect()
        named = ("fault", "queue", "id", "key", "why")
        tables.append(
            Table(f"The first {len(shown)} of {bad:,}", named, [[row[name] for name in named] for row in shown])
        )
    return Outcome(
        sentence=_sentence(figures, bad),
        tables=tables,
        written=_write(summary, wrong, out) if out else (),
        is_good=not bad,
        figures=dict(figures),
    )


def _sentence(figures: dict[str, int], bad: int) -> str:
    live = counted(figures["live"], "is live", "are live")
    said = f"Of {counted(figures['audited'], 'message')} {live} and {figures['settled']:,} settled"
    unknown = f"; {counted(figures['unknown'], 'is', 'are')} older than the history" if figures["unknown"] else ""
    if figures["unused"]:
        unused = counted(figures["unused"], "number was", "numbers were")
        unknown += f"; {unused} never used, as sends that were undone in PostgreSQL leave them"
    if not bad:
        return f"The books balance. {said}{unknown}."
    wrong = ", ".join(f"{figures[name]:,} {name}" for name in ("lost", "doubled", "phantom") if figures[name])
    return f"The books do not balance: {wrong}. {said}{unknown}."


def _write(summary: DataFrame, wrong: DataFrame, out: str) -> list[str]:
    faults = wrong.orderBy("fault", "queue", "key").toArrow()
    with results(out) as folder:
        books = summary.toArrow()
        write_table(folder / "queues.csv", books)
        pyarrow.parquet.write_table(books, folder / "queues.parquet", compression="zstd")
        write_table(folder / "faults.csv", faults)
        pyarrow.parquet.write_table(faults, folder / "faults.parquet", compression="zstd")
    return [f"{out}/{name}" for name in ("queues.csv", "faults.parquet", "faults.csv")]
