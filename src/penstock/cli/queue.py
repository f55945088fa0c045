"""`penstock queue`: make queues, look at them, change them, empty them."""

from typing import Annotated

import msgspec
import typer

from penstock.cli.config import Session, asks_server, complete_queue
from penstock.cli.key_value_options import complete_setting, settings_said
from penstock.cli.output import ExitCode, console, counted, duration, pairs, print_json, remark, say, table
from penstock.contract.queue_settings import PARTS
from penstock.wire.queues import QueueView

app = typer.Typer(no_args_is_help=True, help="Make queues, look at them, change them, empty them.")

Name = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="The name of a queue, or its id.", autocompletion=complete_queue),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SETTING=VALUE]…", help="What to set, in the words of the API.", autocompletion=complete_setting
    ),
]
# Settings may be said as options, too; the words of an option that the command does not have are settings.
_WITH_SETTINGS = {"ignore_unknown_options": True}
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("create", context_settings=_WITH_SETTINGS)
@asks_server
def create(session: Session, name: Name, words: Words = None) -> None:
    """Make a queue. The same again with equal settings changes nothing.

    Settings are those of the API: visibility_timeout, max_deliveries, queue_size,
    retention_s, delay_s, fifo, dedup, history, tiers.mode, tiers.weights,
    tiers.reserve_percent, retry.min_backoff_s …
    A list has one number for each priority, CRITICAL first. Each may be said as an
    option as well.

    [bold]Examples:[/]

    penstock queue create orders
    penstock queue create orders visibility_timeout=60 max_deliveries=3
    penstock queue create orders --visibility-timeout 60 --max-deliveries 3
    penstock queue create bills fifo=true tiers.weights=8,4,2,1,1
    """
    _print_view(session, session.client.create_queue(name, **settings_said(words or [])))


@app.command("list")
@asks_server
def list_queues(
    session: Session, *, prefix: Annotated[str, typer.Option(help="Only names that begin so.")] = ""
) -> None:
    """List the queues and what is in them.

    [bold]Examples:[/]

    penstock queue list
    penstock queue list --prefix orders --json
    """
    rows = list(session.client.queues(prefix))
    if session.is_json:
        print_json(rows)
        return
    shown = table(*_COLUMNS, numbers=_COLUMNS[1:6])
    for row in rows:
        counts = (row.ready, row.in_flight, row.delayed)
        state = ", ".join(filter(None, ("paused" if row.paused else "", f"{row.stuck:,} stuck" if row.stuck else "")))
        shown.add_row(row.queue_name, *(f"{count:,}" for count in counts), duration(row.oldest_age_s), state)
    console.print(shown)
    if not rows:
        remark("There are no queues here. Make one with: penstock queue create orders")


_COLUMNS = ("queue", "ready", "in flight", "delayed", "oldest", "")


@app.command("show")
@asks_server
def show(session: Session, name: Name) -> None:
    """Show a queue: its settings, and what is in it by priority.

    [bold]Examples:[/]

    penstock queue show orders
    penstock queue show orders --json
    """
    _print_view(session, session.client.queue(name).describe())


@app.command("update", context_settings=_WITH_SETTINGS)
@asks_server
def update(session: Session, name: Name, words: Words = None) -> None:
    """Change settings of a queue while it is in use. What is not named stays as it is.

    [bold]Examples:[/]

    penstock queue update orders visibility_timeout=120
    penstock queue update orders tiers.mode=strict retry.max_backoff_s=600
    """
    said = settings_said(words or [])
    if not said:
        raise typer.BadParameter("say what to set, as in visibility_timeout=60")
    _print_view(session, session.client.queue(name).update(**said))


@app.command("pause")
@asks_server
def pause(session: Session, name: Name) -> None:
    """Stop deliveries. Sends continue, and consumers can still ack, release or extend the messages they hold.

    [bold]Example:[/]

    penstock queue pause orders
    """
    view = session.client.queue(name).pause()
    print_json(view) if session.is_json else say(f"{view.queue_name} is paused.")


@app.command("resume")
@asks_server
def resume(session: Session, name: Name) -> None:
    """Resume deliveries.

    [bold]Example:[/]

    penstock queue resume orders
    """
    view = session.client.queue(name).resume()
    print_json(view) if session.is_json else say(f"{view.queue_name} hands out messages.")


@app.command("purge")
@asks_server
def purge(session: Session, name: Name, *, yes: Yes = False) -> None:
    """Delete every message in a queue, received or not. It asks first.

    [bold]Examples:[/]

    penstock queue purge orders
    penstock queue purge orders --yes
    """
    queue = session.client.queue(name)
    if not yes:
        _confirm(f"Delete {counted(queue.describe().current_message_count, 'message')} in {name} for good?")
    purged = queue.purge()
    print_json({"purged": purged}) if session.is_json else say(f"Deleted {counted(purged, 'message')}.")


@app.command("delete")
@asks_server
def delete(
    session: Session,
    name: Name,
    *,
    with_dead_letters: Annotated[
        bool, typer.Option("--with-dead-letters", help="Delete its dead letters too; otherwise they stay.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Delete a queue and every message in it. It asks first.

    [bold]Examples:[/]

    penstock queue delete orders
    penstock queue delete orders --with-dead-letters --yes
    """
    queue = session.client.queue(name)
    if not yes:
        _confirm(f"Delete {name} and {counted(queue.describe().current_message_count, 'message')} in it for good?")
    gone = queue.delete(with_dead_letters=with_dead_letters)
    if session.is_json:
        print_json(gone)
        return
    say(f"Deleted {gone.queue_name}.")
    if gone.dead_letter_queue and not gone.dead_letters_deleted:
        remark(f"{counted(gone.dead_letters, 'dead letter')} stay in {gone.dead_letter_queue}.")


def _confirm(question: str) -> None:
    if not typer.confirm(question, err=True):
        raise typer.Exit(ExitCode.NOTHING)


def _print_view(session: Session, view: QueueView) -> None:
    if session.is_json:
        print_json(view)
        return
    said = msgspec.to_builtins(view)
    rows = [(name, _text(value)) for name, value in said.items() if name not in {"by_tier", *_PARTS}]
    for part in _PARTS:
        rows += [(f"{part}.{name}", _text(value)) for name, value in said[part].items()]
    console.print(pairs(rows))
    shown = table(*_TIER_COLUMNS, numbers=_TIER_COLUMNS[1:])
    for tier in view.by_tier:
        wait = f"{tier.worst_wait_messages:,}"
        shown.add_row(tier.priority, f"{tier.ready:,}", duration(tier.oldest_age_s), wait, duration(tier.worst_wait_s))
    console.print()
    console.print(shown)


# What a view has in parts; a setting of one is said as `tiers.mode=strict`.
_PARTS = (*PARTS, "totals")
_TIER_COLUMNS = ("priority", "ready", "oldest", "longest wait in messages", "in time")


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(f"{each:g}" for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else "-" if value is None else str(value)
