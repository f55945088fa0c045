"""`penstock pipeline triage`: why messages were buried, grouped by cause."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.pipeline.options import Anew, Bar, Conf, Json, KeyText, Master, Queues, Running, need_spark, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.job import Outcome

MINUTES = 30.0


Where = Annotated[
    str,
    typer.Argument(
        help="An archive, a server as http://127.0.0.1:8080, its data folder, or its database, as postgresql://… "
        "(with ?schema=… if it is not in penstock).",
        metavar="WHERE",
    ),
]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="The folder of the results. Those of the last run in it are compared with.")
]
Since = Annotated[str, typer.Option(help="Buried from then on: RFC 3339, as 2026-03-01T00:00:00Z.")]
Until = Annotated[str, typer.Option(help="Buried before then.")]
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


def triage(
    where: Where,
    *,
    out: Out,
    queue: Queues = None,
    since: Since = "",
    until: Until = "",
    deploys: Deploys = None,
    deploy_window: Window = MINUTES,
    shape: Shape = True,
    dead_letters: Letters = True,
    anew: Anew = False,
    key: KeyText = "",
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
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
    need_spark()
    from penstock.pipeline.locations import HistoryLocation
    from penstock.pipeline.triage import job

    options = job.TriageOptions(
        place=HistoryLocation(where=where, key=key, queues=tuple(queue or ()), since=since, until=until),
        out=str(out),
        deploys=str(deploys or ""),
        deploy_window=timedelta(minutes=deploy_window),
        by_shape=shape,
        with_dead_letters=dead_letters,
        is_anew=anew,
    )

    def work(session: "SparkSession", progress: Bar) -> "Outcome":
        return job.run(session, options, progress)

    run_job(Running("triage", master, conf or (), as_json, where), work)
