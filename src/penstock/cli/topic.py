"""`penstock topic`: make topics, look at them and their records, produce a few records by hand.

`penstock group`: the consumer groups of topics, their offsets and their lag.
"""

from typing import Annotated, Any

import msgspec
import typer

from penstock.cli.config import Session, asks_server
from penstock.cli.output import ExitCode, console, counted, pairs, plain, print_json, remark, say, table
from penstock.wire.topics import GroupView, RecordView, TopicSettings, TopicView
from penstock.wire.words import rule_of

app = typer.Typer(no_args_is_help=True, help="Make topics, look at them, browse and produce records.")

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of a topic.")]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="[SETTING=VALUE]…", help="What to set, in the words of the API.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("create")
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
    _print_view(session, session.client.create_topic(name, **settings_said(words or [])))


@app.command("list")
@asks_server
def list_topics(
    session: Session, *, prefix: Annotated[str, typer.Option(help="Only names that begin so.")] = ""
) -> None:
    """List the topics and how much is in them.

    [bold]Examples:[/]

    penstock topic list
    penstock topic list --prefix events --json
    """
    rows = list(session.client.topics(prefix))
    if session.is_json:
        print_json(rows)
        return
    shown = table("topic", *_COUNTS, numbers=_COUNTS)
    for row in rows:
        shown.add_row(
            row.topic_name, *(f"{count:,}" for count in (row.partition_count, row.record_count, row.size_bytes))
        )
    console.print(shown)
    if not rows:
        remark("There are no topics here. Make one with: penstock topic create events")


_COUNTS = ("partitions", "records", "bytes")


@app.command("show")
@asks_server
def show(session: Session, name: Name) -> None:
    """Show a topic: its settings, and where each partition begins and ends.

    [bold]Examples:[/]

    penstock topic show events
    penstock topic show events --json
    """
    _print_view(session, session.client.topic(name).describe())


@app.command("update")
@asks_server
def update(session: Session, name: Name, words: Words = None) -> None:
    """Change settings of a topic while it is in use. What is not named stays as it is.

    [bold]Examples:[/]

    penstock topic update events retention_s=3600
    penstock topic update events partitions=16
    """
    said = settings_said(words or [])
    if not said:
        raise typer.BadParameter("say what to set, as in retention_s=3600")
    _print_view(session, session.client.topic(name).update(**said))


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
        question = f"Delete {name} and {counted(topic.describe().record_count, 'record')} in it for good?"
        if not typer.confirm(question, err=True):
            raise typer.Exit(ExitCode.NOTHING)
    topic.delete()
    print_json({"topic_name": name}) if session.is_json else say(f"Deleted {name}.")


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
    if session.is_json:
        print_json(page)
        return
    shown = table("offset", "time", "key", "value", numbers=("offset",))
    for row in page.records:
        shown.add_row(f"{row.offset}", row.timestamp, plain(_text(row, "key")), plain(_text(row, "value")))
    console.print(shown)
    if not page.records:
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
    if session.is_json:
        print_json(rows)
        return
    for row in rows:
        say(f"partition {row.partition}, offset {row.offset}")


def settings_said(words: list[str]) -> dict[str, Any]:
    """Return what `name=value` words say, as the SDK takes it; one that cannot be is a usage error.

    >>> settings_said(["partitions=8", "retention_s=none", "cleanup=compact"])
    {'partitions': 8, 'retention_s': None, 'cleanup': 'compact'}
    """
    said: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name not in TopicSettings.__struct_fields__:
            known = ", ".join(TopicSettings.__struct_fields__)
            raise typer.BadParameter(f"{word!r} is not a setting; there are {known}, as in partitions=8")
        value = None if text in {"", "none", "null"} else text
        try:
            found = msgspec.convert({name: value}, TopicSettings, strict=False)
        except msgspec.ValidationError as error:
            raise typer.BadParameter(f"{name} cannot be {text!r}: {rule_of(str(error)).words}") from None
        said[name] = getattr(found, name)
    return said


def _print_view(session: Session, view: TopicView) -> None:
    if session.is_json:
        print_json(view)
        return
    said = msgspec.to_builtins(view)
    console.print(pairs([(name, _word(value)) for name, value in said.items() if name != "partitions"]))
    shown = table(*_PARTITION_COLUMNS, numbers=_PARTITION_COLUMNS)
    for each in view.partitions:
        shown.add_row(
            *(f"{number:,}" for number in (each.partition, each.start_offset, each.high_watermark, each.size_bytes))
        )
    console.print()
    console.print(shown)


_PARTITION_COLUMNS = ("partition", "start", "end", "bytes")


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else "-" if value is None else str(value)


def _text(row: RecordView, side: str) -> str:
    plain_text, packed = getattr(row, side), getattr(row, f"{side}_base64")
    return f"base64:{packed}" if packed is not None else "-" if plain_text is None else str(plain_text)


group_app = typer.Typer(no_args_is_help=True, help="See who reads topics together, and how far behind they are.")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The name of a consumer group.")]


@group_app.command("list")
@asks_server
def list_groups(
    session: Session, *, prefix: Annotated[str, typer.Option(help="Only names that begin so.")] = ""
) -> None:
    """List the consumer groups: their state, their members, and how far behind they are.

    [bold]Examples:[/]

    penstock group list
    penstock group list --json
    """
    rows = list(session.client.groups(prefix))
    if session.is_json:
        print_json(rows)
        return
    shown = table("group", "state", "members", "lag", numbers=("members", "lag"))
    for row in rows:
        shown.add_row(plain(row.group_name), row.state, f"{row.member_count:,}", f"{row.lag:,}")
    console.print(shown)
    if not rows:
        remark("There are no groups here. A consumer makes one when it joins or commits.")


@group_app.command("show")
@asks_server
def show_group(session: Session, name: GroupName) -> None:
    """Show a group: its members, and its offset and lag in each partition.

    [bold]Examples:[/]

    penstock group show billing
    penstock group show billing --json
    """
    view = session.client.group(name)
    print_json(view) if session.is_json else _print_group(view)


@group_app.command("delete")
@asks_server
def delete_group(
    session: Session, name: GroupName, *, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False
) -> None:
    """Forget a group that has no members, and how far it has come. It asks first.

    Members that join it afterwards begin as a new group does.

    [bold]Example:[/]

    penstock group delete billing --yes
    """
    if not yes and not typer.confirm(f"Forget how far {name} has come?", err=True):
        raise typer.Exit(ExitCode.NOTHING)
    session.client.delete_group(name)
    print_json({"group_name": name}) if session.is_json else say(f"Deleted {name}.")


def _print_group(view: GroupView) -> None:
    facts = {
        "group": view.group_name,
        "state": view.state,
        "protocol": view.protocol or "-",
        "generation": str(view.generation),
        "lag": f"{view.lag:,}",
    }
    console.print(pairs(facts.items()))
    if view.members:
        members = table("member", "client", "host", "partitions")
        for each in view.members:
            assigned = ", ".join(f"{place.topic_name}/{place.partition}" for place in each.assigned)
            members.add_row(plain(each.member_id), plain(each.client_id), plain(each.host), plain(assigned or "-"))
        console.print()
        console.print(members)
    if view.partitions:
        console.print()
        shown = table("topic", *_OFFSETS, numbers=_OFFSETS)
        for row in view.partitions:
            offsets = (row.committed, row.high_watermark, row.lag)
            shown.add_row(
                plain(row.topic_name), f"{row.partition}", *("-" if each is None else f"{each:,}" for each in offsets)
            )
        console.print(shown)


_OFFSETS = ("partition", "committed", "end", "lag")
