"""`penstock pipeline replay`: settled messages are sent once more."""

from typing import Annotated

import typer

from penstock.cli.pipeline.load import DryRun, MaxWait, Rate, Url, Work, pairs_of
from penstock.cli.pipeline.running import Conf, Json, KeyText, Master, Running, run_job

Which = "Which messages"


def replay(
    source: Annotated[str, typer.Argument(help="An archive, the URL of a server, or the data folder of one.")],
    *,
    job: Annotated[str, typer.Option(help="What this replay is called: under one name, a message is replayed once.")],
    url: Url = "http://127.0.0.1:8080",
    key: KeyText = "",
    into: Annotated[str, typer.Option(help="The queue they go to; by default the one each came from.")] = "",
    queue: Annotated[list[str] | None, typer.Option(help="Only of this queue.", rich_help_panel=Which)] = None,
    since: Annotated[str, typer.Option(help="Settled from then on, RFC 3339.", rich_help_panel=Which)] = "",
    until: Annotated[str, typer.Option(help="Settled before, RFC 3339.", rich_help_panel=Which)] = "",
    outcome: Annotated[
        list[str] | None, typer.Option(help="acked, buried, expired, purged, …", rich_help_panel=Which)
    ] = None,
    attribute: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE that it carries.", rich_help_panel=Which)
    ] = None,
    signature: Annotated[
        str, typer.Option(help="A signatures.json of triage: what failed so.", rich_help_panel=Which)
    ] = "",
    ids: Annotated[str, typer.Option(help="A file with an id in each line.", rich_help_panel=Which)] = "",
    where: Annotated[str, typer.Option(help="A condition in SQL.", rich_help_panel=Which)] = "",
    work: Work = "./penstock-work",
    rate: Rate = None,
    max_wait: MaxWait = 300.0,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Send settled messages again: from an archive, or the history of a server, into a queue.

    Group, priority and attributes stay; the attribute replayed-from names the message it
    was. Dead letters go to the queue they were buried from. Bodies are there if the queue
    keeps full history; messages without are counted and not sent. Look first with --dry-run.

    [bold]Examples:[/]

    penstock pipeline replay ./archive --job fix-42 --queue orders --since 2026-03-01T00:00:00Z --dry-run
    penstock pipeline replay ./archive --job fix-42 --signature triage/signatures.json --rate 50
    penstock pipeline replay ./archive --job again --where "error LIKE '%timeout%'" --into retries
    """
    from penstock.pipeline.jobs import replay as job_module
    from penstock.pipeline.jobs.staging import Target
    from penstock.pipeline.places import Place
    from penstock.pipeline.transforms.replaying import Choice

    attributes = pairs_of(attribute or (), "--attribute")
    options = job_module.ReplayOptions(
        place=Place(where=source, key=key, queues=queue or (), since=since, until=until),
        target=Target(url=url, key=key, rate=rate, wait_s_max=max_wait),
        work=work,
        job=job,
        choice=Choice(outcomes=outcome or (), attributes=attributes, where=where),
        signatures=signature,
        ids=ids,
        into=into,
        is_dry_run=dry_run,
    )
    running = Running("replay", master, conf or (), as_json)
    run_job(running, lambda spark, progress: job_module.run(spark, options, progress))
