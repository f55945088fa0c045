"""The jobs that read history and report: `penstock pipeline signals`, `triage`, `skew`, `whatif` and `audit`."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.pipeline.options import FullRefresh, HistoryJob, Queues, SparkJob, asks_spark, reads_history, run_job

if TYPE_CHECKING:
    from penstock.pipeline.whatif.simulation import Scenario


@reads_history
def signals_command(
    job: HistoryJob,
    *,
    out: Annotated[str, typer.Option("--out", help="The folder for the results; it is replaced as a whole.")],
    window: Annotated[
        str, typer.Option(help="1s, 10s, 1m, 5m, 1h or 1d; by default the shortest that gives at most 500 windows.")
    ] = "",
    tenant: Annotated[str, typer.Option(help="Whose a message is: group, or attribute:<name>.")] = "group",
    tenants: Annotated[int, typer.Option(help="How many tenants of each queue are shown apart.", min=1, max=100)] = 10,
    weights: Annotated[
        str, typer.Option(help="Weights of the tiers, as 16,8,4,2,1, if the archive does not know them.")
    ] = "",
    full_refresh: FullRefresh = False,
) -> None:
    """Show the four golden signals of queues: latency, traffic, errors and saturation.

    From what was settled: rates, waits and handling times in percentiles, retries, dead
    letters, depth and in flight over time, by queue, tier, tenant and window; who waited
    longer than the weights promise, and which tier was starved. The folder gets each table
    as Parquet and CSV, and one report.html to look at. Run it again into the same folder, and it
    reads what is new in the history, and what that changes.

    [bold]Examples:[/]

    penstock pipeline signals ./archive --out ./report
    penstock pipeline signals ./archive --out ./report --queue orders --since 2026-03-01T00:00:00Z
    penstock pipeline signals ./penstock-data --out ./report --window 1m --tenant attribute:customer
    """
    from penstock.pipeline.signals.job import SignalsOptions, run

    options = SignalsOptions(
        place=job.place,
        out=out,
        window=window,
        tenant=tenant,
        tenants=tenants,
        weights=weights,
        full_refresh=full_refresh,
    )
    run_job(job, "signals", run, options, job.place.where)


MINUTES = 30.0


TriageOut = Annotated[
    Path, typer.Option("--out", "-o", help="The folder of the results. Those of the last run in it are compared with.")
]
Deploys = Annotated[
    Path | None,
    typer.Option(
        help="Marks of deploys: CSV with the columns at and name, or JSON lines.", exists=True, dir_okay=False
    ),
]
Window = Annotated[float, typer.Option(help="Minutes after a deploy in which a cause may begin with it.", min=0.01)]
Shape = Annotated[
    bool, typer.Option("--shape/--no-shape", help="Whether bodies of different shapes are different causes.")
]
Letters = Annotated[
    bool,
    typer.Option(
        "--dead-letters/--no-dead-letters", help="Whether to look for bodies among what is still a dead letter."
    ),
]


@reads_history
def triage_command(
    job: HistoryJob,
    *,
    out: TriageOut,
    deploys: Deploys = None,
    deploy_window: Window = MINUTES,
    shape: Shape = True,
    dead_letters: Letters = True,
    full_refresh: FullRefresh = False,
) -> None:
    """Group buried messages by what their errors have in common.

    Numbers, ids, paths, addresses, times and quoted texts are taken out of an error; what is left, the
    innermost frames and the shape of the body are its signature, and messages of one signature are one
    cause. Run it again into the same folder: it reads what is new in the history, and tells which causes are new
    and which are gone.

    The results are report.html, causes.csv, causes.parquet, and files for [bold]replay --signature[/]:
    signatures.json for all causes, signatures/CAUSE.json for each.

    [bold]Examples:[/]

    penstock pipeline triage ./archive --out ./triage
    penstock pipeline triage ./archive --out ./triage --deploys deploys.csv --deploy-window 60
    penstock pipeline triage http://127.0.0.1:8080 --out ./triage --queue orders --since 2026-03-01T00:00:00Z
    """
    from penstock.pipeline.triage.job import TriageOptions, run

    options = TriageOptions(
        place=job.place,
        out=str(out),
        deploys=str(deploys or ""),
        deploy_window=timedelta(minutes=deploy_window),
        by_shape=shape,
        with_dead_letters=dead_letters,
        full_refresh=full_refresh,
    )
    run_job(job, "triage", run, options, job.place.where)


@reads_history
def skew_command(
    job: HistoryJob,
    *,
    out: Annotated[
        str, typer.Option("--out", help="A folder for the tables as CSV and JSON; it is replaced as a whole.")
    ] = "",
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute",
            help="Look at the values of this attribute too; its queue must keep full history. May be repeated.",
        ),
    ] = None,
    full_refresh: FullRefresh = False,
) -> None:
    """Find hot groups, heavy tenants, crowded tiers and uneven shards.

    For each: its part of the messages, of the handling time and of the retries, how
    much longer it waits than others, and a sentence that says what to do. Run it again into the
    same folder, and it reads only what is new in the history.

    [bold]Examples:[/]

    penstock pipeline skew ./archive
    penstock pipeline skew ./archive --queue orders --attribute customer --out ./skew
    """
    from penstock.pipeline.skew import SkewOptions, run

    options = SkewOptions(
        place=job.place,
        out=out,
        attributes=tuple(attribute or ()),
        full_refresh=full_refresh,
    )
    run_job(job, "skew", run, options, job.place.where)


ROWS = 1_000_000


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
Rows = Annotated[int, typer.Option(help="At most so many messages of each queue, the newest.", min=1)]
WhatIfOut = Annotated[Path | None, typer.Option("--out", "-o", help="A folder for report.html and waits.csv.")]


@reads_history
def whatif_command(
    job: HistoryJob,
    *,
    weights: Weights = None,
    scenario: Scenarios = None,
    workers: Workers = 0,
    batch: Batch = 1,
    rows: Rows = ROWS,
    out: WhatIfOut = None,
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
    from penstock.pipeline.whatif.job import WhatIfOptions, run

    options = WhatIfOptions(
        place=job.place,
        scenarios=_scenarios(weights or [], scenario or []),
        workers=workers,
        batch=batch,
        rows=rows,
        out=str(out or ""),
    )
    run_job(job, "whatif", run, options, job.place.where)


def _scenarios(weights: list[str], scenarios: list[str]) -> "list[Scenario]":
    """Read them before Spark starts, so that a typing error is reported at once."""
    from penstock.pipeline.job import JobFailed
    from penstock.pipeline.whatif.simulation import of_weights, read_scenario

    try:
        return [*map(of_weights, weights), *map(read_scenario, scenarios)]
    except JobFailed as error:
        raise typer.BadParameter(str(error)) from None


@asks_spark
def audit_command(
    job: SparkJob,
    server: Annotated[str, typer.Argument(help="The server whose queues are audited: http://127.0.0.1:8080.")],
    *,
    history: Annotated[
        str, typer.Option(help="An archive, or the data folder of a store, with what the server no longer keeps.")
    ] = "",
    queue: Queues = None,
    since: Annotated[
        str, typer.Option(help="Audit only what was sent after this time, as in 2026-03-01T00:00:00Z.")
    ] = "",
    sent: Annotated[
        str, typer.Option(help="A producer's own list of ids: .parquet or .csv with a column id, or .txt.")
    ] = "",
    complete: Annotated[bool, typer.Option("--complete", help="The list has everything that was sent.")] = False,
    out: Annotated[str, typer.Option(help="A folder for the list of what is wrong, as Parquet and CSV.")] = "",
) -> None:
    """Prove that nothing was lost, doubled or made up.

    Every number that a queue has given to a message is accounted for: the message is in the
    queue now, or the history tells once how it was settled. Numbers older than the history
    are unknown, and counted apart. It ends with code 1 if anything is wrong.

    [bold]Examples:[/]

    penstock pipeline audit http://127.0.0.1:8080
    penstock pipeline audit http://127.0.0.1:8080 --history ./archive --out ./audit
    penstock pipeline audit http://127.0.0.1:8080 --queue orders --sent ids.parquet --complete
    """
    from penstock.pipeline.audit.job import AuditOptions, run
    from penstock.pipeline.locations import HistoryLocation

    options = AuditOptions(
        server=HistoryLocation(where=server, key=job.key, queues=tuple(queue or ()), since=since),
        history=history,
        sent=sent,
        is_complete=complete,
        out=out,
    )
    run_job(job, "audit", run, options)
