"""`penstock pipeline run`: all jobs of a file, for as long as it is not told to stop."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import ExitCode, refuse, remark, show, table
from penstock.cli.pipeline.archive import told_to_stop
from penstock.cli.pipeline.options import Bar, SparkJob, asks_spark, run_job
from penstock.pipeline.job import JobFailed, Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.service.plan import Plan


@asks_spark
def run_command(
    job: SparkJob,
    file: Annotated[Path, typer.Argument(help="The file with the jobs, such as pipeline.toml.")],
    *,
    check: Annotated[bool, typer.Option("--check", help="Show what would run and when, and run nothing.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Run each job one time, the archive first, and end.")] = False,
) -> None:
    """Run all jobs of a file in one Spark session, each when it is due.

    It goes on until Ctrl-C or SIGTERM. A job that fails is tried again, and the others go on. A status
    page and metrics for Prometheus are at the address that the file says; results are tables
    and reports in its folder. With --once it ends with code 1 if a job failed, or found something wrong.

    [bold]Examples:[/]

    penstock pipeline run pipeline.toml --check
    penstock pipeline run pipeline.toml
    penstock pipeline run pipeline.toml --once
    """
    from penstock.pipeline.service.plan import read_plan

    try:
        plan = read_plan(file, key=job.key)
        if check:
            _show_plan(plan, as_json=job.is_json)
            return
        from penstock.pipeline.service.runner import only_instance

        with only_instance(plan.out):
            # Before Spark is started: its threads of the planners are bound to where they were begun.
            settings = {"spark.scheduler.mode": "FAIR", **plan.spark, **job.settings}
            asked = SparkJob(job.key, job.master or plan.master, settings, job.is_json)
            run_job(asked, "run", _once if once else _serve, plan)
    except JobFailed as error:
        refuse(str(error), ExitCode.BAD_SETTINGS)


def _serve(spark: "SparkSession", plan: "Plan", bar: Bar) -> Outcome:
    from penstock.pipeline.service.runner import Service

    bar.step("Running")
    return Service(spark, plan, tell=_tell, stopping=told_to_stop()).serve()


def _once(spark: "SparkSession", plan: "Plan", bar: Bar) -> Outcome:
    from penstock.pipeline.service.runner import Service

    bar.step("Running each job once")
    return Service(spark, plan, tell=_tell, stopping=told_to_stop()).once()


def _tell(text: str) -> None:
    remark(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}")


def _show_plan(plan: "Plan", *, as_json: bool) -> None:
    from penstock.pipeline.service.tables import TABLES

    rows = []
    for job in plan.jobs:
        at_s = job.at_s or 0
        when = f"at {at_s // 3_600:02}:{at_s // 60 % 60:02} UTC" if job.every_s is None else f"every {job.every_s:,} s"
        place = plan.place_of(job)
        made = ", ".join(each.table for each in TABLES.get(job.kind, ())) or None
        rows.append((job.name, job.kind, place.shown, ", ".join(place.queues) or "all", when, plan.out_of(job), made))
    columns = ("job", "kind", "reads", "queues", "when", "writes", "tables")
    host, port = plan.listen
    value = {"jobs": [dict(zip(columns, row, strict=True)) for row in rows], "listen": f"{host}:{port}"}
    show(value, table(*columns, rows=rows), f"Status and metrics: http://{host}:{port}", as_json=as_json)
