"""`penstock pipeline skew`: who has most of it, and what to do."""

from typing import Annotated

import typer

from penstock.cli.pipeline.options import Anew, Conf, Json, KeyText, Master, Queues, Running, need_spark, run_job


def skew_command(
    where: Annotated[
        str,
        typer.Argument(
            help="An archive, the data folder of a store, the address of a server, or its database, as postgresql://… "
            "(with ?schema=… if it is not in penstock)."
        ),
    ],
    *,
    out: Annotated[
        str, typer.Option("--out", help="A folder for the tables as CSV and JSON; it is replaced as a whole.")
    ] = "",
    queue: Queues = None,
    since: Annotated[str, typer.Option(help="Only messages settled from this time on, as 2026-03-01T12:00:00Z.")] = "",
    until: Annotated[str, typer.Option(help="Only messages settled before this time.")] = "",
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute",
            help="Look at the values of this attribute too; its queue must keep full history. May be repeated.",
        ),
    ] = None,
    anew: Anew = False,
    key: KeyText = "",
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Find hot groups, heavy tenants, crowded tiers and uneven shards.

    For each: its part of the messages, of the handling time and of the retries, how
    much longer it waits than others, and a sentence that says what to do. Run it again into the
    same folder, and it reads only what is new in the history.

    [bold]Examples:[/]

    penstock pipeline skew ./archive
    penstock pipeline skew ./archive --queue orders --attribute customer --out ./skew
    """
    need_spark()
    from penstock.pipeline.locations import HistoryLocation
    from penstock.pipeline.skew import SkewOptions, run

    options = SkewOptions(
        place=HistoryLocation(where=where, key=key, queues=tuple(queue or ()), since=since, until=until),
        out=out,
        attributes=tuple(attribute or ()),
        is_anew=anew,
    )
    running = Running("skew", master, conf or (), as_json, where)
    run_job(running, lambda session, progress: run(session, options, progress))
