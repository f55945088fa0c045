"""`penstock pipeline audit`: whether every message is live, or was settled exactly once."""

from typing import Annotated

import typer

from penstock.cli.pipeline.options import Conf, Json, KeyText, Master, Queues, Running, need_spark, run_job


def audit_command(
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
    key: KeyText = "",
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
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
    need_spark()
    from penstock.pipeline.audit import job as audit
    from penstock.pipeline.locations import HistoryLocation

    options = audit.AuditOptions(
        server=HistoryLocation(where=server, key=key, queues=tuple(queue or ()), since=since),
        history=history,
        sent=sent,
        is_complete=complete,
        out=out,
    )
    running = Running("audit", master, conf or (), as_json)
    run_job(running, lambda session, progress: audit.run(session, options, progress))
