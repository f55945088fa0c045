"""`penstock pipeline whatif`: how long messages would have waited under other settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.pipeline.options import Bar, Conf, Json, KeyText, Master, Queues, Running, need_spark, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.job import Outcome
    from penstock.pipeline.whatif.simulation import Scenario

ROWS = 1_000_000


Where = Annotated[
    str,
    typer.Argument(
        help="An archive, a server as http://127.0.0.1:8080, its data folder, or its database, as postgresql://… "
        "(with ?schema=… if it is not in penstock).",
        metavar="WHERE",
    ),
]
Weights = Annotated[
    list[str] | None, typer.Option("--weights", "-w", help="Try these weights, CRITICAL first. May be repeated.")
]
Scenarios = Annotated[
    list[str] | None,
    typer.Option("--scenario", "-s", help="NAME:weights=…,aging=…,mode=strict,workers=8. May be repeated."),
]
Workers = Annotated[
    int,
    typer.Option(help="Workers of every scenario that names none; 0: as many as ever handled messages at once.", min=0),
]
Batch = Annotated[int, typer.Option(help="How many messages a worker takes at once.", min=1, max=10_000)]
Since = Annotated[str, typer.Option(help="Settled from then on: RFC 3339, as 2026-03-01T00:00:00Z.")]
Until = Annotated[str, typer.Option(help="Settled before then.")]
Rows = Annotated[int, typer.Option(help="At most so many messages of each queue, the newest.", min=1)]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="A folder for report.html and waits.csv.")]


def whatif(
    where: Where,
    *,
    weights: Weights = None,
    scenario: Scenarios = None,
    workers: Workers = 0,
    batch: Batch = 1,
    queue: Queues = None,
    since: Since = "",
    until: Until = "",
    rows: Rows = ROWS,
    out: Out = None,
    key: KeyText = "",
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Replay arrivals and handling times under other weights, aging, strictness or workers.

    The scheduler is the server's own, in virtual time. For each queue and priority it shows the waits as
    they happened, those of the baseline (simulated, with the settings as they are) and those of
    each scenario. By as much as the baseline differs from what happened, the scenarios may be wrong too.

    [bold]Examples:[/]

    penstock pipeline whatif ./archive --weights 8,4,2,1,1 --weights 32,8,4,2,1
    penstock pipeline whatif ./archive --scenario night:mode=strict,workers=4 --queue orders
    penstock pipeline whatif ./archive --scenario 'calm:weights=4,2,2,1,1,aging=0,0,0,10m,20m' --out ./whatif
    """
    need_spark()
    from penstock.pipeline.locations import HistoryLocation
    from penstock.pipeline.whatif import job

    options = job.WhatIfOptions(
        place=HistoryLocation(where=where, key=key, queues=tuple(queue or ()), since=since, until=until),
        scenarios=_scenarios(weights or [], scenario or []),
        workers=workers,
        batch=batch,
        rows=rows,
        out=str(out or ""),
    )

    def work(session: "SparkSession", progress: Bar) -> "Outcome":
        return job.run(session, options, progress)

    run_job(Running("whatif", master, conf or (), as_json, where), work)


def _scenarios(weights: list[str], scenarios: list[str]) -> "list[Scenario]":
    """Read them before Spark starts: a slip of the hand is told at once."""
    from penstock.pipeline.job import JobFailed
    from penstock.pipeline.whatif.simulation import of_weights, read_scenario

    try:
        return [*map(of_weights, weights), *map(read_scenario, scenarios)]
    except JobFailed as error:
        raise typer.BadParameter(str(error)) from None
