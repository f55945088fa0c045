"""`penstock escalate` moves messages to another priority, `penstock explain` says why one waits."""

import getpass
import socket
from typing import Annotated, Any, cast

import msgspec
import typer

from penstock.cli.config import Session, asks_server
from penstock.cli.output import ExitCode, counted, duration, pairs, remark, table
from penstock.cli.queue import Name
from penstock.cli.receive import Containing, Group
from penstock.cli.send import complete_priority


@asks_server
def escalate(
    session: Session,
    name: Name,
    message_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Which messages.")] = None,
    *,
    priority: Annotated[str, typer.Option(help="Where they go.", autocompletion=complete_priority)],
    reason: Annotated[str, typer.Option(help="Why; it is kept.")],
    actor: Annotated[
        str | None, typer.Option(help="Who escalates, for the record; by default your user name and this machine.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="When they fall back: RFC 3339.")] = None,
    lower: Annotated[bool, typer.Option("--lower", help="Move them to a less urgent priority instead.")] = False,
    text: Containing = None,
    group: Group = None,
    from_priority: Annotated[
        str | None, typer.Option(help="Only those of this priority.", autocompletion=complete_priority)
    ] = None,
) -> None:
    """Move messages that wait to a more urgent priority: some by id, or those that fit.

    Who did it, when and why is kept with the queue.

    [bold]Examples:[/]

    penstock escalate orders 4k2m9x --priority CRITICAL --reason "the customer calls"
    penstock escalate orders --text teapot --priority HIGH --reason recall
    penstock escalate orders --from-priority HIGH --priority LOW --lower --reason "it can wait"
    """
    said = {"text": text, "group": group, "priority": from_priority}
    chosen: Any = {name: value for name, value in said.items() if value is not None}
    if bool(message_ids) == bool(chosen):
        raise typer.BadParameter("say ids, or what the messages have in common: --text, --group, --from-priority")
    done = session.client.queue(name).escalate(
        message_ids or chosen,
        priority=cast("Any", priority),
        actor=actor or f"{getpass.getuser()}@{socket.gethostname()}",
        reason=reason,
        until=until,
        lower=lower,
    )
    session.show(done, f"Moved {counted(len(done.moved), 'message')} to {priority.upper()}.")
    already = f"At {priority.upper()} already, or {'less' if lower else 'more'} urgent"
    left = {already: done.unchanged, "Did not wait any more": done.not_pending, "Unknown here": done.unknown}
    for why, ids in left.items():
        if ids and not session.is_json:
            remark(f"{why}: {', '.join(ids)}")
    if not done.moved:
        raise typer.Exit(ExitCode.NOTHING)


@asks_server
def escalations(session: Session, name: Name) -> None:
    """List who moved messages of a queue to another priority, when and why.

    [bold]Example:[/]

    penstock escalations orders
    """
    found = session.client.queue(name).escalations()
    rows = [(each.at, each.actor, each.priority, len(each.message_ids), each.until, each.reason) for each in found]
    shown = table("at", "actor", "priority", "messages", "until", "reason", numbers=["messages"], rows=rows)
    session.show(found, shown, empty=f"Nothing in {name} was escalated.")


@asks_server
def explain(
    session: Session,
    name: Name,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The id of a message.")],
) -> None:
    """Say why a message was delivered when it was, or what it waits for.

    [bold]Example:[/]

    penstock explain orders 4k2m9x
    """
    found = session.client.queue(name).explain(message_id)
    rows = {}
    for field, value in msgspec.to_builtins(found).items():
        if field != "reason" and value is not None:
            rows[field] = duration(value) if field == "worst_wait_s" else str(value)
    session.show(found, found.reason, pairs(rows))
