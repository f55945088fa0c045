"""`penstock pipeline signals`: how it went, as tables and plots."""

from typing import Annotated

import typer

from penstock.cli.pipeline.options import Anew, Conf, Json, KeyText, Master, Queues, Running, need_spark, run_job

Where = Annotated[
    str,
    typer.Argument(
        help="An archive, the data folder of a store, the address of a server, or its database, as postgresql://… "
        "(with ?schema=… if it is not in penstock)."
    ),
]


def signals_command(
    where: Where,
    *,
    out: Annotated[str, typer.Option("--out", help="The folder for the results; it is replaced as a whole.")],
    queue: Queues = None,
    since: Annotated[str, typer.Option(help="Only messages settled from this time on, as 2026-03-01T12:00:00Z.")] = "",
    until: Annotated[str, typer.Option(help="Only messages settled before this time.")] = "",
    window: Annotated[
        str, typer.Option(help="1s, 10s, 1m, 5m, 1h or 1d; by default the shortest that gives at most 500 windows.")
    ] = "",
    tenant: Annotated[str, typer.Option(help="Whose a message is: group, or attribute:<name>.")] = "group",
    tenants: Annotated[int, typer.Option(help="So many tenants of each queue are told apart.", min=1, max=100)] = 10,
    weights: Annotated[
        str, typer.Option(help="Weights of the tiers, as 16,8,4,2,1, if the archive does not know them.")
    ] = "",
    anew: Anew = False,
    key: KeyText = "",
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
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
    need_spark()
    from penstock.pipeline.locations import HistoryLocation
    from penstock.pipeline.signals.job import SignalsOptions, run

    options = SignalsOptions(
        place=HistoryLocation(where=where, key=key, queues=tuple(queue or ()), since=since, until=until),
        out=out,
        window=window,
        tenant=tenant,
        tenants=tenants,
        weights=weights,
        is_anew=anew,
    )
    running = Running("signals", master, conf or (), as_json, where)
    run_job(running, lambda session, progress: run(session, options, progress))
