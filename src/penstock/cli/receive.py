"""`penstock receive` takes messages out of a queue, `penstock peek` only looks.

`penstock escalate` moves messages to another priority, and `penstock explain` says why one waits.
"""

import getpass
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, cast

import msgspec
import typer

from penstock.cli.config import Session, asks_server
from penstock.cli.output import ExitCode, console, counted, duration, pairs, plain, print_json, remark, table
from penstock.cli.queue import Name
from penstock.cli.send import Priority, complete_priority
from penstock.client import SyncBatch, SyncMessage, SyncQueue
from penstock.contract.limits import LONG_POLL_S_MAX, REQUEST_MESSAGES_MAX
from penstock.wire.messages import JSON_CONTENT, Seen, SeenPage

BODY_CHARACTERS_MAX = 60
BATCH_MAX = 100

State = Annotated[str | None, typer.Option(help="Only those that are ready, delayed, in_flight, stuck or moving.")]
Group = Annotated[str | None, typer.Option(help="Only those of this group.")]
Containing = Annotated[str | None, typer.Option("--text", help="Only those with this in their body.")]


@asks_server
def receive(
    session: Session,
    name: Name,
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many messages at most.")] = 1,
    wait_s: Annotated[float, typer.Option(min=0, help="Seconds to wait if there is none.")] = 0,
    ack: Annotated[bool, typer.Option(help="Whether each is settled once it is printed.")] = True,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    visibility_timeout: Annotated[
        float | None, typer.Option(help="Seconds for which they are hidden from others.")
    ] = None,
) -> None:
    """Receive messages and print them, one on a line; then ack them.

    With --no-ack they come back when their visibility timeout has passed, and the
    delivery is counted. --json prints everything about each, with its receipt. The
    exit code is 1 if there was nothing.

    [bold]Examples:[/]

    penstock receive orders
    penstock receive orders --limit 100 --wait-s 20 --json
    penstock receive orders --follow
    penstock receive orders --no-ack --visibility-timeout 5
    """
    queue = session.client.queue(name)
    seen = 0
    for batch in _received(queue, limit, wait_s, visibility_timeout, is_following=follow):
        with _to_its_end():
            for message in batch:
                if session.is_json:
                    print_json(_about(message))
                elif console.is_terminal:
                    # A body as it is could move the cursor.
                    console.print(plain(message.body.decode(errors="replace")), soft_wrap=True)
                else:
                    typer.echo(message.body)
            # What was not printed must not be settled.
            sys.stdout.flush()
            if ack and not all(done := batch.ack()):
                remark(f"{done.count(False)} came too late to be acked: they will be delivered again.")
        seen += len(batch)
    if not seen:
        if not session.is_json:
            remark(f"There was nothing to receive in {name}.")
        raise typer.Exit(ExitCode.NOTHING)


@contextmanager
def _to_its_end() -> Iterator[None]:
    """Heed the first Ctrl-C only afterwards, so that what was printed is settled too; a second one ends it at once."""
    is_told = False

    def hear(*_: object) -> None:
        nonlocal is_told
        if is_told:
            raise KeyboardInterrupt
        is_told = True

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if is_told:
        raise KeyboardInterrupt


def _received(
    queue: SyncQueue, count: int, wait_s: float, visibility_timeout: float | None, *, is_following: bool
) -> Iterator[SyncBatch]:
    left, left_s = count, wait_s
    while is_following or left > 0:
        limit = BATCH_MAX if is_following else min(left, REQUEST_MESSAGES_MAX)
        poll_s = float(LONG_POLL_S_MAX) if is_following else min(left_s, LONG_POLL_S_MAX)
        batch = queue.receive(limit=limit, wait_s=poll_s, visibility_timeout=visibility_timeout)
        if batch:
            yield batch
            left -= len(batch)
        elif not is_following:
            left_s -= poll_s
            if left_s <= 0:
                return


@asks_server
def peek(
    session: Session,
    name: Name,
    *,
    limit: Annotated[int, typer.Option(min=1, max=REQUEST_MESSAGES_MAX, help="How many at most.")] = 10,
    state: State = None,
    priority: Priority = None,
    group: Group = None,
    text: Containing = None,
    cursor: Annotated[str | None, typer.Option(help="Where the last answer ended.")] = None,
) -> None:
    """Look at messages without receiving them: nothing is hidden, nothing is counted.

    [bold]Examples:[/]

    penstock peek orders
    penstock peek orders --priority CRITICAL --text teapot --limit 100
    penstock peek orders --state delayed --json
    """
    which = {"state": state, "priority": priority, "group": group, "text": text}
    show_seen(session, look_for(session.client.queue(name), limit, cursor, **which))


def look_for(queue: SyncQueue, limit: int, cursor: str | None, **which: Any) -> SeenPage:
    """Look at as many messages as were asked for.

    One answer may have fewer, even none, and more may follow: a server looks only at so many at once.
    """
    found: list[Seen] = []
    while True:
        page = queue.peek(limit=limit - len(found), cursor=cursor, **which)
        found += page.messages
        cursor = page.next_cursor
        if cursor is None or len(found) >= limit:
            return SeenPage(found, cursor)


def show_seen(session: Session, page: SeenPage, *, with_error: bool = False) -> None:
    """Print a page of messages that were looked at, and end the command with `NOTHING` if there is none."""
    columns, rows = ["id", "state", "priority", "deliveries", "sent", "data"], []
    for each in page.messages:
        error = [shortened(_in_one_line(each.last_error))] if with_error else []
        cells = (each.message_id, each.state, each.priority, each.delivery_count, each.sent_at)
        rows.append((*cells, *error, shortened(_data(each))))
    if with_error:
        columns.insert(5, "last error")
    session.show(page, table(*columns, numbers=["deliveries"], rows=rows))
    if page.next_cursor and not session.is_json:
        remark(f"There are more. Go on with: --cursor {page.next_cursor}")
    if not page.messages:
        raise typer.Exit(ExitCode.NOTHING)


def _in_one_line(error: object) -> str:
    """Return what an error says, with its frames, for a cell of a table.

    >>> _in_one_line("ValueError: no tea\\n  app.py:3 in brew: raise")
    'ValueError: no tea · app.py:3 in brew: raise'
    """
    return " · ".join(line.strip() for line in error.splitlines()) if isinstance(error, str) else ""


def shortened(text: str) -> str:
    return text if len(text) <= BODY_CHARACTERS_MAX else f"{text[: BODY_CHARACTERS_MAX - 1]}…"


def _data(message: Seen) -> str:
    if isinstance(message.data_base64, str):
        return f"base64:{message.data_base64}"
    return message.data if isinstance(message.data, str) else msgspec.json.encode(message.data).decode()


def _about(message: SyncMessage) -> dict[str, Any]:
    return {
        "message_id": message.id,
        "receipt": message.receipt,
        **_said(message),
        "priority": message.priority,
        "attributes": message.attributes,
        "delivery_count": message.delivery_count,
        "sent_at": message.sent_at,
        "invisible_until": message.invisible_until,
        "group": message.group,
        "last_error": message.last_error,
    }


def _said(message: SyncMessage) -> dict[str, Any]:
    """Return the body as the API shows it: JSON that was sent as such, text, or base64."""
    try:
        if message.attributes.get("content_type") == JSON_CONTENT:
            return {"data": message.json()}
        return {"data": message.text}
    except (UnicodeDecodeError, msgspec.DecodeError):
        return {"data_base64": message.body}


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
