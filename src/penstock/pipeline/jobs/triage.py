"""The job `triage`: dead letters by cause, with what helps to judge each; new and gone causes since the last run.

It reads the burials of a history and, where they are to be had, the bodies of what is still a dead letter: from
the archive's own copy of them, or from the server. All it leaves is its folder, whole or not at all.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.pipeline.archives.asking import Server
from penstock.pipeline.archives.letters import dead_letter_queues
from penstock.pipeline.files import has_path
from penstock.pipeline.outcome import Outcome, Progress, Table
from penstock.pipeline.places import DEAD_LETTERS, Place, is_archive, read_history, read_live
from penstock.pipeline.reports.folder import results, settle_folder
from penstock.pipeline.reports.plots import cut
from penstock.pipeline.triage.causes import Cause, Memory, Remembered, Setting, cause_of, gone, recall, remember
from penstock.pipeline.triage.marks import read_marks
from penstock.pipeline.triage.report import report, stamp
from penstock.pipeline.triage.results import write_causes, write_signatures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# More causes than anybody reads: then the signatures do not do their work, and the rest is counted only.
CAUSES_MAX = 10_000
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageOptions:
    place: Place
    # The folder of the results; the last ones in it are compared with, and replaced.
    out: str
    # A file of marks, see `triage.marks`; "" for none.
    deploys: str = ""
    deploy_window: timedelta = timedelta(minutes=30)
    # Whether bodies of different shapes make different causes.
    by_shape: bool = True
    # Whether bodies are taken from dead letters where the history has none.
    with_dead_letters: bool = True


class Known(NamedTuple):
    """What of the history was read."""

    first: datetime
    last: datetime
    settled: int
    buried: int


def run(spark: "SparkSession", options: TriageOptions, progress: Progress) -> Outcome:
    from penstock.pipeline.transforms import triage as transforms  # noqa: PLC0415 - it needs Spark.

    settle_folder(options.out)
    marks = read_marks(options.deploys) if options.deploys else []
    last = recall(Path(options.out), by_shape=options.by_shape)
    history = read_history(spark, options.place)
    progress.step("Reading the history")
    known = _known(history)
    progress.rows(known.settled)
    progress.step(f"Finding the causes of {known.buried:,} burials")
    burials = transforms.judged(history, _dead_letters(spark, options), by_shape=options.by_shape).persist()
    try:
        since = last.known_to if last else None
        rows = [
            row.asDict(recursive=True) for row in transforms.causes(burials, since=since).limit(CAUSES_MAX).collect()
        ]
        parts = transforms.buckets(burials, first=known.first, last=known.last).collect()
        signatures = [row.asDict() for row in transforms.signatures(burials).limit(10 * CAUSES_MAX).collect()]
    finally:
        burials.unpersist()
    setting = Setting(known_from=known.first, last=last, marks=marks, within=options.deploy_window)
    buckets = _filled(parts, transforms.BUCKETS)
    causes = [cause_of(_in_utc(row), buckets[row["cause_id"]], setting) for row in rows]
    progress.step("Writing the report")
    missing = gone(causes, last)
    _write(options, known, causes, [_in_utc(row) for row in signatures], last)
    return _outcome(options, known, causes, missing, is_first=last is None)


def _known(history: "DataFrame") -> Known:
    from pyspark.sql import functions as f  # noqa: PLC0415

    row = history.agg(
        f.min("settled_at").alias("first"),
        f.max("settled_at").alias("last"),
        f.count("*").alias("settled"),
        f.count(f.when(f.col("outcome") == "buried", 1)).alias("buried"),
    ).first()
    assert row is not None
    nothing = datetime.fromtimestamp(0, UTC)
    return Known(_utc(row["first"] or nothing), _utc(row["last"] or nothing), row["settled"], row["buried"])


def _dead_letters(spark: "SparkSession", options: TriageOptions) -> "DataFrame | None":
    if not options.with_dead_letters:
        return None
    place = options.place
    if is_archive(spark, place.where):
        where = f"{place.where}/{DEAD_LETTERS}"
        return spark.read.parquet(where) if has_path(spark, where) else None
    if not place.is_server:
        return None
    names = dead_letter_queues(Server(place.where, place.key).queues())
    return read_live(spark, replace(place, queues=names, since="", until="")) if names else None


def _filled(parts: Sequence[Any], count: int) -> "defaultdict[str, list[int]]":
    found: defaultdict[str, list[int]] = defaultdict(lambda: [0] * count)
    for part in parts:
        found[part["cause_id"]][part["bucket"]] = part["burials"]
    return found


def _write(
    options: TriageOptions,
    known: Known,
    causes: Sequence[Cause],
    signatures: Sequence[dict[str, Any]],
    last: Memory | None,
) -> None:
    kept = {
        cause.cause_id: Remembered(cause.signature, cause.burials, cause.first_seen, cause.last_seen)
        for cause in causes
    }
    told = report(
        causes,
        gone(causes, last),
        known_from=known.first,
        known_to=known.last,
        is_first=last is None,
        foot=f"{known.settled:,} settled messages of {options.place.shown}",
    )
    with results(options.out) as folder:
        write_causes(folder, causes)
        write_signatures(folder, signatures)
        remember(folder, Memory(by_shape=options.by_shape, known_to=known.last, causes=kept))
        (folder / "report.html").write_text(told, encoding="utf-8")


def _outcome(
    options: TriageOptions, known: Known, causes: Sequence[Cause], missing: dict[str, Remembered], *, is_first: bool
) -> Outcome:
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
        "nothing to compare with yet" if is_first else f"{fresh:,} new and {len(missing):,} gone since the last run"
    )
    buried = f"{known.buried:,} of {known.settled:,} settled messages were buried"
    return Outcome(
        sentence=f"{buried}, for {len(causes):,} causes: {compared}.",
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
        },
    )


def _in_utc(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _utc(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _utc(at: datetime) -> datetime:
    """Spark gives times of this machine's zone that do not say so."""
    return at.astimezone(UTC)
