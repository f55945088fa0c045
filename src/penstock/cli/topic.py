"""`penstock topic`: make topics, look at them and their records, produce a few records by hand.

`penstock group`: the consumer groups of topics, their offsets and their lag.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from penstock.cli.config import Prefix, Session, Yes, asks_server
from penstock.cli.key_value_options import TOPIC, WITH_SETTINGS, changes_said, settings_said
from penstock.cli.output import confirm, counted, pairs, remark, table
from penstock.wire.topics import GroupView, RecordView, TopicView

app = typer.Typer(no_args_is_help=True, help="Make topics, look at them, browse and produce records.")

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of a topic.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SETTING=VALUE]…", help="What to set, in the words of the API.", autocompletion=TOPIC.complete
    ),
]


@app.command("create", context_settings=WITH_SETTINGS)
@asks_server
def create(session: Session, name: Name, words: Words = None) -> None:
    """Make a topic. The same again with equal settings changes nothing.

    Settings are partitions, retention_s, retention_bytes, segment_bytes,
    max_message_bytes and cleanup (delete, compact, or compact,delete).

    [bold]Examples:[/]

    penstock topic create events
    penstock topic create events partitions=8 retention_s=86400
    penstock topic create prices cleanup=compact
    """
    _print_view(session, session.client.create_topic(name, **settings_said(words or [], TOPIC)))


@app.command("list")
@asks_server
def list_topics(session: Session, *, prefix: Prefix = "") -> None:
    """List the topics and how much is in them.

    [bold]Examples:[/]

    penstock topic list
    penstock topic list --prefix events --json
    """
    rows = list(session.client.topics(prefix))
    cells = [(row.topic_name, row.partition_count, row.record_count, row.size_bytes) for row in rows]
    numbers = ("partitions", "records", "bytes")
    shown = table("topic", *numbers, numbers=numbers, rows=cells)
    session.show(rows, shown, empty="There are no topics here. Make one with: penstock topic create events")


@app.command("show")
@asks_server
def show(session: Session, name: Name) -> None:
    """Show a topic: its settings, and where each partition begins and ends.

    [bold]Examples:[/]

    penstock topic show events
    penstock topic show events --json
    """
    _print_view(session, session.client.topic(name).describe())


@app.command("update", context_settings=WITH_SETTINGS)
@asks_server
def update(session: Session, name: Name, words: Words = None) -> None:
    """Change settings of a topic while it is in use. What is not named stays as it is.

    [bold]Examples:[/]

    penstock topic update events retention_s=3600
    penstock topic update events partitions=16
    """
    _print_view(session, session.client.topic(name).update(**changes_said(words or [], TOPIC)))


@app.command("delete")
@asks_server
def delete(session: Session, name: Name, *, yes: Yes = False) -> None:
    """Delete a topic and every record in it. It asks first.

    [bold]Examples:[/]

    penstock topic delete events
    penstock topic delete events --yes
    """
    topic = session.client.topic(name)
    if not yes:
        confirm(f"Delete {name} and {counted(topic.describe().record_count, 'record')} in it for good?")
    topic.delete()
    session.show({"topic_name": name}, f"Deleted {name}.")


@app.command("browse")
@asks_server
def browse(
    session: Session,
    name: Name,
    *,
    partition: Annotated[int, typer.Option(help="Which one.", min=0)] = 0,
    offset: Annotated[int | None, typer.Option(help="Where to begin; by default at the start.", min=0)] = None,
    since: Annotated[str | None, typer.Option(help="Begin with records of this time, as 2026-11-16T09:00:00Z.")] = None,
    limit: Annotated[int, typer.Option(help="How many.", min=1, max=1_000)] = 20,
) -> None:
    """Look at records of one partition. No group goes on by it.

    [bold]Examples:[/]

    penstock topic browse events
    penstock topic browse events --partition 3 --offset 1200 --limit 5
    penstock topic browse events --since 2026-11-16T09:00:00Z --json
    """
    page = session.client.topic(name).browse(partition=partition, offset=offset, since=since, limit=limit)
    cells = [(f"{row.offset}", row.timestamp, _text(row, "key"), _text(row, "value")) for row in page.records]
    session.show(page, table("offset", "time", "key", "value", numbers=("offset",), rows=cells))
    if not page.records and not session.is_json:
        remark(
            f"Nothing is there: partition {partition} has offsets from {page.start_offset} to {page.high_watermark}."
        )


@app.command("produce")
@asks_server
def produce(
    session: Session,
    name: Name,
    values: Annotated[list[str], typer.Argument(metavar="VALUE…", help="What to add, one record each.")],
    *,
    record_key: Annotated[str | None, typer.Option(help="The key of all of them.")] = None,
    partition: Annotated[int | None, typer.Option(help="Instead of the one that the key chooses.", min=0)] = None,
) -> None:
    """Add records by hand. Programs do it with Kafka's clients, or with the SDK.

    [bold]Examples:[/]

    penstock topic produce events "two teapots"
    penstock topic produce events one two --record-key orders
    """
    rows = session.client.topic(name).add(list(values), key=record_key, partition=partition)
    session.show(rows, *(f"partition {row.partition}, offset {row.offset}" for row in rows))


def _print_view(session: Session, view: TopicView) -> None:
    said = msgspec.to_builtins(view)
    del said["partitions"]
    cells = [(each.partition, each.start_offset, each.high_watermark, each.size_bytes) for each in view.partitions]
    columns = ("partition", "start", "end", "bytes")
    session.show(view, pairs(said), "", table(*columns, numbers=columns, rows=cells))


def _text(row: RecordView, side: str) -> str:
    plain_text, packed = getattr(row, side), getattr(row, f"{side}_base64")
    return f"base64:{packed}" if packed is not None else "-" if plain_text is None else str(plain_text)


group_app = typer.Typer(no_args_is_help=True, help="See who reads topics together, and how far behind they are.")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The name of a consumer group.")]


@group_app.command("list")
@asks_server
def list_groups(session: Session, *, prefix: Prefix = "") -> None:
    """List the consumer groups: their state, their members, and how far behind they are.

    [bold]Examples:[/]

    penstock group list
    penstock group list --json
    """
    rows = list(session.client.groups(prefix))
    cells = [(row.group_name, row.state, row.member_count, row.lag) for row in rows]
    shown = table("group", "state", "members", "lag", numbers=("members", "lag"), rows=cells)
    session.show(rows, shown, empty="There are no groups here. A consumer makes one when it joins or commits.")


@group_app.command("show")
@asks_server
def show_group(session: Session, name: GroupName) -> None:
    """Show a group: its members, and its offset and lag in each partition.

    [bold]Examples:[/]

    penstock group show billing
    penstock group show billing --json
    """
    view = session.client.group(name)
    session.show(view, *_group_tables(view))


@group_app.command("delete")
@asks_server
def delete_group(session: Session, name: GroupName, *, yes: Yes = False) -> None:
    """Forget a group that has no members, and how far it has come. It asks first.

    Members that join it afterwards begin as a new group does.

    [bold]Example:[/]

    penstock group delete billing --yes
    """
    if not yes:
        confirm(f"Forget how far {name} has come?")
    session.client.delete_group(name)
    session.show({"group_name": name}, f"Deleted {name}.")


def _group_tables(view: GroupView) -> Iterator[str | Table]:
    yield pairs(
        {
            "group": view.group_name,
            "state": view.state,
            "protocol": view.protocol or None,
            "generation": view.generation,
            "lag": f"{view.lag:,}",
        }
    )
    if view.members:
        members = [
            (
                each.member_id,
                each.client_id,
                each.host,
                ", ".join(f"{at.topic_name}/{at.partition}" for at in each.assigned) or None,
            )
            for each in view.members
        ]
        yield ""
        yield table("member", "client", "host", "partitions", rows=members)
    if view.partitions:
        offsets = [
            (row.topic_name, row.partition, row.committed, row.high_watermark, row.lag) for row in view.partitions
        ]
        numbers = ("partition", "committed", "end", "lag")
        yield ""
        yield table("topic", *numbers, numbers=numbers, rows=offsets)
