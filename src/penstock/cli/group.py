"""`penstock group`: who reads topics together, how far they have come, and how far they are behind."""

from typing import Annotated

import typer

from penstock.cli.connection import Session, asks_server
from penstock.cli.exits import Ending
from penstock.cli.output import console, pairs, plain, print_json, remark, say, table
from penstock.wire.topics import GroupView, LagRow

app = typer.Typer(no_args_is_help=True, help="See who reads topics together, and how far behind they are.")

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The name of a consumer group.")]


@app.command("list")
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


@app.command("show")
@asks_server
def show(session: Session, name: Name) -> None:
    """Show a group: its members, and its offset and lag in each partition.

    [bold]Examples:[/]

    penstock group show billing
    penstock group show billing --json
    """
    view = session.client.group(name)
    print_json(view) if session.is_json else _print_view(view)


@app.command("delete")
@asks_server
def delete(
    session: Session, name: Name, *, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False
) -> None:
    """Forget a group that has no members, and how far it has come. It asks first.

    Whoever joins it afterwards begins as a new group does.

    [bold]Example:[/]

    penstock group delete billing --yes
    """
    if not yes and not typer.confirm(f"Forget how far {name} has come?", err=True):
        raise typer.Exit(Ending.NOTHING)
    session.client.delete_group(name)
    print_json({"group_name": name}) if session.is_json else say(f"Deleted {name}.")


def _print_view(view: GroupView) -> None:
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
            shown.add_row(plain(row.topic_name), f"{row.partition}", *_numbers(row))
        console.print(shown)


_OFFSETS = ("partition", "committed", "end", "lag")


def _numbers(row: LagRow) -> list[str]:
    return ["-" if each is None else f"{each:,}" for each in (row.committed, row.high_watermark, row.lag)]
