"""Runs a job of a plan: its options from the file, and the same function that the command line calls.

Each is imported when it first runs: a plan without signals needs none of them.
"""

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.pipeline.job import Outcome, Progress
from penstock.pipeline.service.plan import Plan, PlannedJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_planned(
    spark: "SparkSession", plan: Plan, job: PlannedJob, progress: Progress, stopping: threading.Event
) -> Outcome:
    if job.kind == "archive":
        return _archive(spark, plan, job, progress, stopping)
    return _JOBS[job.kind](spark, plan, job, progress)


def _archive(
    spark: "SparkSession", plan: Plan, job: PlannedJob, progress: Progress, stopping: threading.Event
) -> Outcome:
    from penstock.pipeline.archive.job import ArchiveOptions, run  # noqa: PLC0415

    options = ArchiveOptions(
        source=plan.place_of(job),
        root=plan.archive,
        is_trimming=job.options["trim"],
        rows_per_batch=job.options["rows_per_batch"],
    )
    return run(spark, options, progress, stopping)


def _signals(spark: "SparkSession", plan: Plan, job: PlannedJob, progress: Progress) -> Outcome:
    from penstock.pipeline.signals.job import SignalsOptions, run  # noqa: PLC0415

    said = {name: job.options[name] for name in ("window", "tenant", "tenants", "weights") if name in job.options}
    return run(spark, SignalsOptions(place=plan.place_of(job), out=plan.out_of(job), **said), progress)


def _skew(spark: "SparkSession", plan: Plan, job: PlannedJob, progress: Progress) -> Outcome:
    from penstock.pipeline.skew import SkewOptions, run  # noqa: PLC0415

    attributes = job.options.get("attributes", ())
    options = SkewOptions(place=plan.place_of(job), out=plan.out_of(job), attributes=attributes)
    return run(spark, options, progress)


def _triage(spark: "SparkSession", plan: Plan, job: PlannedJob, progress: Progress) -> Outcome:
    from penstock.pipeline.triage.job import TriageOptions, run  # noqa: PLC0415

    deploys = job.options.get("deploys", "")
    return run(spark, TriageOptions(place=plan.place_of(job), out=plan.out_of(job), deploys=deploys), progress)


def _audit(spark: "SparkSession", plan: Plan, job: PlannedJob, progress: Progress) -> Outcome:
    from penstock.pipeline.audit.job import AuditOptions, run  # noqa: PLC0415

    options = AuditOptions(server=plan.place_of(job), history=plan.archive, out=plan.out_of(job))
    return run(spark, options, progress)


def _upkeep(_spark: "SparkSession", plan: Plan, job: PlannedJob, progress: Progress) -> Outcome:
    from penstock.pipeline.archive import upkeep  # noqa: PLC0415

    said = []
    if days := job.options.get("keep_days"):
        progress.step("Taking away old days")
        said.append(upkeep.expire(plan.archive, days, now=datetime.now(UTC)).sentence)
    progress.step("Compacting")
    said.append(upkeep.compact(plan.archive).sentence)
    progress.step("Removing files")
    said.append(upkeep.vacuum(plan.archive).sentence)
    return Outcome(sentence=" ".join(said))


def _quality(spark: "SparkSession", plan: Plan, job: PlannedJob, progress: Progress) -> Outcome:
    from penstock.pipeline.service.quality import run  # noqa: PLC0415

    return run(spark, plan.place_of(job), plan.out_of(job), progress)


_JOBS = {
    "signals": _signals,
    "skew": _skew,
    "triage": _triage,
    "audit": _audit,
    "upkeep": _upkeep,
    "quality": _quality,
}
