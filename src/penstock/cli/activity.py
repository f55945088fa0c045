"""`penstock activity` shows the audit log: who did what, and who was not let in."""

from typing import Annotated

import typer

from penstock.cli.config import Session, asks_server
from penstock.cli.output import table


@asks_server
def activity(
    session: Session,
    target: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A queue, topic, group or key.")] = None,
    *,
    actor: Annotated[str | None, typer.Option(help="Only what was done with the key of this name.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action: queue.purge, or queue, topic, login.")] = None,
    since: Annotated[str | None, typer.Option(help="Only from then on: RFC 3339.")] = None,
    until: Annotated[str | None, typer.Option(help="Only before then: RFC 3339.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
) -> None:
    """Show who did what, the newest first: changes, deletions, purges, redrives, keys, and logins that failed.

    It needs the role admin: on the queue that is named, or on all for everything.

    [bold]Examples:[/]

    penstock activity
    penstock activity orders --action queue.purge
    penstock activity --action login --since 2027-01-31T00:00:00Z
    """
    found = session.client.activity(target=target, actor=actor, action=action, since=since, until=until)
    entries = [entry for entry, _ in zip(found, range(limit), strict=False)]
    rows = []
    for each in entries:
        actor_shown = f"{each.actor} ({each.label})" if each.label else each.actor
        where = f"{each.via} {each.source}".strip()
        rows.append((each.at, actor_shown, each.action, each.target, each.count, where, each.detail))
    shown = table("at", "actor", "action", "target", "times", "via", "detail", numbers=["times"], rows=rows)
    session.show(entries, shown, empty="Nothing that fits is in the audit log.")
