"""`penstock queue`: make queues, look at them, change them, empty them."""

from typing import Annotated

import msgspec
import typer

from penstock.cli.config import Prefix, Session, Yes, asks_server, complete_queue
from penstock.cli.key_value_options import QUEUE, WITH_SETTINGS, changes_said, settings_said
from penstock.cli.output import confirm, counted, duration, pairs, remark, table
from penstock.wire.queues import QueueView

app = typer.Typer(no_args_is_help=True, help="Make queues, look at them, change them, empty them.")

Name = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="The name of a queue, or its id.", autocompletion=complete_queue),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SETTING=VALUE]…", help="What to set, in the words of the API.", autocompletion=QUEUE.complete
    ),
]


@app.command("create", context_settings=WITH_SETTINGS)
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
def list_queues(session: Session, *, prefix: Prefix = "") -> None:
    """List the queues and what is in them.

    [bold]Examples:[/]

    penstock queue list
    penstock queue list --prefix orders --json
    """
    rows = list(session.client.queues(prefix))
    cells = []
    for row in rows:
        state = ", ".join(filter(None, ("paused" if row.paused else "", f"{row.stuck:,} stuck" if row.stuck else "")))
        cells.append((row.queue_name, row.ready, row.in_flight, row.delayed, duration(row.oldest_age_s), state))
    numbers = ("ready", "in flight", "delayed", "oldest")
    shown = table("queue", *numbers, "", numbers=(*numbers, ""), rows=cells)
    session.show(rows, shown, empty="There are no queues here. Make one with: penstock queue create orders")


@app.command("show")
@asks_server
def show(session: Session, name: Name) -> None:
    """Show a queue: its settings, and what is in it by priority.

    [bold]Examples:[/]

    penstock queue show orders
    penstock queue show orders --json
    """
    _print_view(session, session.client.queue(name).describe())


@app.command("update", context_settings=WITH_SETTINGS)
@asks_server
def update(session: Session, name: Name, words: Words = None) -> None:
    """Change settings of a queue while it is in use. What is not named stays as it is.

    [bold]Examples:[/]

    penstock queue update orders visibility_timeout=120
    penstock queue update orders tiers.mode=strict retry.max_backoff_s=600
    """
    _print_view(session, session.client.queue(name).update(**changes_said(words or [], QUEUE)))


@app.command("pause")
@asks_server
def pause(session: Session, name: Name) -> None:
    """Stop deliveries. Sends continue, and consumers can still ack, release or extend the messages they hold.

    [bold]Example:[/]

    penstock queue pause orders
    """
    view = session.client.queue(name).pause()
    session.show(view, f"{view.queue_name} is paused.")


@app.command("resume")
@asks_server
def resume(session: Session, name: Name) -> None:
    """Resume deliveries.

    [bold]Example:[/]

    penstock queue resume orders
    """
    view = session.client.queue(name).resume()
    session.show(view, f"{view.queue_name} hands out messages.")


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
        confirm(f"Delete {counted(queue.describe().current_message_count, 'message')} in {name} for good?")
    purged = queue.purge()
    session.show({"purged": purged}, f"Deleted {counted(purged, 'message')}.")


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
        confirm(f"Delete {name} and {counted(queue.describe().current_message_count, 'message')} in it for good?")
    gone = queue.delete(with_dead_letters=with_dead_letters)
    session.show(gone, f"Deleted {gone.queue_name}.")
    if gone.dead_letter_queue and not gone.dead_letters_deleted and not session.is_json:
        remark(f"{counted(gone.dead_letters, 'dead letter')} stay in {gone.dead_letter_queue}.")


def _print_view(session: Session, view: QueueView) -> None:
    said = msgspec.to_builtins(view)
    del said["by_tier"]
    cells = [
        (tier.priority, tier.ready, duration(tier.oldest_age_s), tier.worst_wait_messages, duration(tier.worst_wait_s))
        for tier in view.by_tier
    ]
    numbers = ("ready", "oldest", "longest wait in messages", "in time")
    session.show(view, pairs(said), "", table("priority", *numbers, numbers=numbers, rows=cells))
