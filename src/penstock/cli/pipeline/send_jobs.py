"""The jobs that send: `penstock pipeline load` from files, `penstock pipeline replay` from the history."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.config import with_options
from penstock.cli.pipeline.options import (
    Conf,
    Json,
    KeyText,
    Master,
    Queues,
    Since,
    Source,
    SparkJob,
    Until,
    asking_spark,
    pairs_of,
    run_job,
)
from penstock.contract.messages import OUTCOMES_TEXT

if TYPE_CHECKING:
    from penstock.pipeline.staging import Target

Url = Annotated[str, typer.Option("--url", envvar="PENSTOCK_URL", help="The server.", rich_help_panel="Server")]
Work = Annotated[
    str, typer.Option(help="A folder for what this job remembers; on a cluster, one that all machines reach.")
]
Rate = Annotated[float | None, typer.Option(min=0.001, help="Messages per second, at most.")]
MaxWait = Annotated[
    float, typer.Option(min=0, help="Seconds that one send waits while the queue is full or the server is away.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")]


@dataclass(frozen=True, slots=True)
class SendJob(SparkJob):
    """A job that sends: to where, and where it remembers what it sent."""

    target: "Target"
    work: str
    is_dry_run: bool


@contextmanager
def asking_to_send(
    *,
    url: Url = "http://127.0.0.1:8080",
    work: Work = "./penstock-work",
    rate: Rate = None,
    max_wait: MaxWait = 300.0,
    dry_run: DryRun = False,
    key: KeyText = "",
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> Iterator[SendJob]:
    with asking_spark(key=key, master=master, conf=conf, as_json=as_json) as job:
        from penstock.pipeline.staging import Target

        target = Target(url=url, key=key, rate=rate, wait_s_max=max_wait)
        yield SendJob(key, master, job.settings, as_json, target, work, dry_run)


sends = with_options(asking_to_send)

Paths = Annotated[list[str], typer.Argument(help="Files, folders or patterns, on whatever file system Spark reaches.")]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", help="COLUMN=EXPRESSION: a column of a message or record from those of the file, in SQL."),
]
Id = Annotated[str, typer.Option("--id", help="A column whose values are dedup ids.")]
Format = Annotated[str, typer.Option("--format", help="parquet, csv or json; by default by the ending.")]
Option = Annotated[list[str] | None, typer.Option(help="NAME=VALUE for Spark's reader, such as sep=;")]
Rejects = Annotated[str, typer.Option(help="A folder for rows that cannot be sent; by default below --work.")]
Job = Annotated[str, typer.Option(help="What this load is called; by default load- and the queue or topic.")]
Queue = Annotated[str, typer.Option("--queue", "-q", help="The queue they go to.")]
Topic = Annotated[str, typer.Option(help="Or the topic they go to, as records.")]


@sends
def load(
    sending: SendJob,
    paths: Paths,
    *,
    queue: Queue = "",
    topic: Topic = "",
    mapping: Map = None,
    id_column: Id = "",
    form: Format = "",
    option: Option = None,
    rejects: Rejects = "",
    job: Job = "",
) -> None:
    """Load files of Parquet, CSV or JSON lines into a queue or a topic.

    Columns are called as those of a message (or of a record: value, key, headers, partition, timestamp), or
    --map says which is which; without data (or value), it is the whole row as JSON. Rows that cannot be sent go to
    a file with the reason. Run it again: what was loaded is left out, and a run that was killed is completed.

    [bold]Examples:[/]

    penstock pipeline load 'in/*.csv' --queue orders --map data=body --id order_id --dry-run
    penstock pipeline load events.jsonl --topic events --map key=customer --map "headers=map('source', 'shop')"
    """
    from penstock.pipeline.load.job import LoadOptions, run

    options = LoadOptions(
        paths=paths,
        target=sending.target,
        queue=queue,
        topic=topic,
        work=sending.work,
        now=datetime.now(UTC),
        job=job,
        form=form,
        mapping=pairs_of(mapping or (), "--map"),
        id_column=id_column,
        rejects=rejects,
        is_dry_run=sending.is_dry_run,
        reader_options=pairs_of(option or (), "--option"),
    )
    run_job(sending, "load", run, options)


Which = "Which messages"
ReplayJob = Annotated[str, typer.Option(help="What this replay is called: under one name, a message is replayed once.")]
Into = Annotated[str, typer.Option("--target-queue", help="The queue they go to; by default the one each came from.")]
IntoTopic = Annotated[str, typer.Option(help="Or the topic they go to, as records.")]
ReplayMap = Annotated[
    list[str] | None,
    typer.Option("--map", help="With --topic: key, value, headers or timestamp =EXPRESSION over the history."),
]
Ended = Annotated[list[str] | None, typer.Option(help=f"{OUTCOMES_TEXT}.", rich_help_panel=Which)]
Carries = Annotated[list[str] | None, typer.Option(help="NAME=VALUE that it carries.", rich_help_panel=Which)]
Signature = Annotated[str, typer.Option(help="A signatures.json of triage: what failed so.", rich_help_panel=Which)]
IdsFile = Annotated[str, typer.Option("--ids", help="A file with an id in each line.", rich_help_panel=Which)]
Where = Annotated[str, typer.Option(help="A condition in SQL.", rich_help_panel=Which)]


@sends
def replay(
    sending: SendJob,
    source: Source,
    *,
    job: ReplayJob,
    into: Into = "",
    topic: IntoTopic = "",
    mapping: ReplayMap = None,
    queue: Queues = None,
    since: Since = "",
    until: Until = "",
    outcome: Ended = None,
    attribute: Carries = None,
    signature: Signature = "",
    ids: IdsFile = "",
    where: Where = "",
) -> None:
    """Send settled messages again: from an archive, or the history of a server, into a queue or a topic.

    Group, priority and attributes stay (in a topic, as key and headers); replayed-from is the id it had. Dead letters
    go to the queue they were buried from. What has no body, for lack of full history, is counted and not sent.

    [bold]Examples:[/]

    penstock pipeline replay ./archive --job fix-42 --queue orders --since 2026-03-01T00:00:00Z --dry-run
    penstock pipeline replay ./archive --job fix-42 --signature triage/signatures.json --rate 50
    penstock pipeline replay ./archive --job again --where "error LIKE '%timeout%'" --target-queue retries
    penstock pipeline replay ./archive --job to-events --queue orders --topic events --map timestamp=sent_at
    """
    from penstock.pipeline.locations import HistoryLocation
    from penstock.pipeline.replay import Choice, ReplayOptions, run

    options = ReplayOptions(
        place=HistoryLocation(where=source, key=sending.key, queues=queue or (), since=since, until=until),
        target=sending.target,
        work=sending.work,
        job=job,
        signatures=signature,
        ids=ids,
        into=into,
        topic=topic,
        choice=Choice(outcomes=outcome or (), attributes=pairs_of(attribute or (), "--attribute"), where=where),
        mapping=pairs_of(mapping or (), "--map"),
        is_dry_run=sending.is_dry_run,
    )
    run_job(sending, "replay", run, options)
