"""`penstock pipeline replay`: settled messages are sent once more."""

from typing import Annotated

import typer

from penstock.cli.pipeline.options import Conf, Json, KeyText, Master, Running, need_spark, run_job
from penstock.cli.pipeline.send_jobs import DryRun, MaxWait, Rate, Url, Work, pairs_of, target_of
from penstock.pipeline.locations import HistoryLocation

Which = "Which messages"


Source = Annotated[
    str, typer.Argument(help="An archive, the URL of a server, its data folder, or its database, as postgresql://….")
]
Job = Annotated[str, typer.Option(help="What this replay is called: under one name, a message is replayed once.")]
Into = Annotated[str, typer.Option(help="The queue they go to; by default the one each came from.")]
Topic = Annotated[str, typer.Option(help="Or the topic they go to, as records.")]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", help="With --topic: key, value, headers or timestamp =EXPRESSION over the history."),
]
Of = Annotated[list[str] | None, typer.Option("--queue", "-q", help="Only of this queue.", rich_help_panel=Which)]
Since = Annotated[str, typer.Option(help="Settled from then on, RFC 3339.", rich_help_panel=Which)]
Until = Annotated[str, typer.Option(help="Settled before, RFC 3339.", rich_help_panel=Which)]
Ended = Annotated[list[str] | None, typer.Option(help="acked, buried, expired, purged, …", rich_help_panel=Which)]
Carries = Annotated[list[str] | None, typer.Option(help="NAME=VALUE that it carries.", rich_help_panel=Which)]
Signature = Annotated[str, typer.Option(help="A signatures.json of triage: what failed so.", rich_help_panel=Which)]
IdsFile = Annotated[str, typer.Option("--ids", help="A file with an id in each line.", rich_help_panel=Which)]
Where = Annotated[str, typer.Option(help="A condition in SQL.", rich_help_panel=Which)]


def replay(
    source: Source,
    *,
    job: Job,
    url: Url = "http://127.0.0.1:8080",
    key: KeyText = "",
    into: Into = "",
    topic: Topic = "",
    mapping: Map = None,
    queue: Of = None,
    since: Since = "",
    until: Until = "",
    outcome: Ended = None,
    attribute: Carries = None,
    signature: Signature = "",
    ids: IdsFile = "",
    where: Where = "",
    work: Work = "./penstock-work",
    rate: Rate = None,
    max_wait: MaxWait = 300.0,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Send settled messages again: from an archive, or the history of a server, into a queue or a topic.

    Group, priority and attributes stay (in a topic, as key and headers); replayed-from is the id it had. Dead letters
    go to the queue they were buried from. What has no body, for lack of full history, is counted and not sent.

    [bold]Examples:[/]

    penstock pipeline replay ./archive --job fix-42 --queue orders --since 2026-03-01T00:00:00Z --dry-run
    penstock pipeline replay ./archive --job fix-42 --signature triage/signatures.json --rate 50
    penstock pipeline replay ./archive --job again --where "error LIKE '%timeout%'" --into retries
    penstock pipeline replay ./archive --job to-events --queue orders --topic events --map timestamp=sent_at
    """
    need_spark()
    from penstock.pipeline import replay as job_module
    from penstock.pipeline.replay import Choice

    texts = {"work": work, "job": job, "signatures": signature, "ids": ids, "into": into, "topic": topic}
    options = job_module.ReplayOptions(
        place=HistoryLocation(where=source, key=key, queues=queue or (), since=since, until=until),
        target=target_of(url, key, rate, max_wait),
        choice=Choice(outcomes=outcome or (), attributes=pairs_of(attribute or (), "--attribute"), where=where),
        mapping=pairs_of(mapping or (), "--map"),
        is_dry_run=dry_run,
        **texts,
    )
    run_job(Running("replay", master, conf or (), as_json), lambda spark, at: job_module.run(spark, options, at))
