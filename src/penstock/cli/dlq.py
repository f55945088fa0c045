"""`penstock dlq`: dead letters, looked at and sent back."""

import time
from typing import Annotated, Any

import typer

from penstock.cli.config import Session, asks_server, complete_queue
from penstock.cli.output import ExitCode, counted, duration, print_json, progress, remark, say, table
from penstock.cli.receive import Containing, Group, look_for, show_seen
from penstock.cli.send import Priority
from penstock.client import SyncQueue
from penstock.contract.limits import REQUEST_MESSAGES_MAX
from penstock.contract.names import is_dead_letters
from penstock.wire.operators import RedriveTask

POLL_S = 0.2
DeadIn = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE", help="The queue whose dead letters are meant, or their own.", autocompletion=complete_queue
    ),
]
NoQueue = Annotated[
    str | None, typer.Argument(metavar="", help="None: `penstock dlq show` shows those of one queue.", hidden=True)
]
TargetQueue = Annotated[str | None, typer.Option(help="The queue they go to; by default the one each came from.")]
Error = Annotated[str | None, typer.Option("--error", help="Only those with this in their last error.")]

app = typer.Typer(no_args_is_help=True, help="Dead letters: look at them, send them back.")


@app.command("list")
@asks_server
def list_dead(session: Session, name: NoQueue = None) -> None:
    """List the queues that have dead letters, and how many.

    [bold]Example:[/]

    penstock dlq list
    """
    if name is not None:
        raise typer.BadParameter(f"it lists all queues; `penstock dlq show {name}` shows the dead letters of one")
    rows = list(session.client.queues())
    names = {row.queue_id: row.queue_name for row in rows}
    buried_in = {names[row.dlq_id]: row.queue_name for row in rows if row.dlq_id in names}
    dead = [row for row in rows if row.queue_name in buried_in or is_dead_letters(row.queue_name)]
    cells = [
        (buried_in.get(row.queue_name), row.queue_name, row.current_message_count, duration(row.oldest_age_s))
        for row in dead
    ]
    shown = table("queue", "dead letters in", "count", "oldest", numbers=["count", "oldest"], rows=cells)
    value = [{"queue": buried_in.get(row.queue_name), "dead_letters": row} for row in dead]
    session.show(value, shown, empty="There are no dead letters.")


@app.command("show")
@asks_server
def show(
    session: Session,
    name: DeadIn,
    *,
    limit: Annotated[int, typer.Option(min=1, max=REQUEST_MESSAGES_MAX, help="How many at most.")] = 10,
    text: Containing = None,
    cursor: Annotated[str | None, typer.Option(help="Where the last answer ended.")] = None,
) -> None:
    """Show dead letters: what they say, and the error they failed with.

    [bold]Examples:[/]

    penstock dlq show orders
    penstock dlq show orders --limit 100 --json
    """
    show_seen(session, look_for(dead_letters_of(session, name), limit, cursor, text=text), with_error=True)


@app.command("requeue")
@asks_server
def requeue(
    session: Session,
    name: DeadIn,
    message_ids: Annotated[list[str], typer.Argument(metavar="ID…", help="The ids of dead letters.")],
    *,
    target_queue: TargetQueue = None,
) -> None:
    """Send some dead letters back, one by one. Their deliveries are counted from 1 again.

    [bold]Example:[/]

    penstock dlq requeue orders 4k2m9x
    """
    queue = dead_letters_of(session, name)
    for message_id in message_ids:
        done = queue.requeue(message_id, target_queue=target_queue)
        session.show(done, f"{done.message_id} went to {done.requeued_to_name}")


@app.command("redrive")
@asks_server
def redrive(
    session: Session,
    name: DeadIn,
    *,
    target_queue: TargetQueue = None,
    error: Error = None,
    text: Containing = None,
    group: Group = None,
    priority: Priority = None,
    origin: Annotated[str | None, typer.Option(help="Only those first sent to this queue.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="How many at most.")] = None,
    rate_per_s: Annotated[float | None, typer.Option(help="How many in a second at most.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and move nothing.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait: the server goes on by itself.")] = False,
) -> None:
    """Send dead letters back, all of them or those that fit. Ctrl-C stops it at the server too.

    [bold]Examples:[/]

    penstock dlq redrive orders --dry-run
    penstock dlq redrive orders --error "connection refused" --rate-per-s 50
    penstock dlq redrive orders --limit 10 --target-queue orders-test
    """
    said = {"error": error, "text": text, "group": group, "priority": priority, "origin_queue": origin}
    chosen: Any = {name: value for name, value in said.items() if value is not None}
    queue = dead_letters_of(session, name)
    task = queue.redrive(
        target_queue=target_queue, filter=chosen or None, limit=limit, rate_per_s=rate_per_s, dry_run=dry_run
    )
    if not detach:
        task = _watched(queue, task)
    print_json(task) if session.is_json else _print_task(task)
    if task.state == "failed" or task.reason or (task.moved_total == 0 and task.state == "done"):
        raise typer.Exit(ExitCode.NOTHING)


def dead_letters_of(session: Session, name: str) -> SyncQueue:
    """Return the queue with the dead letters of this one; of one that is for dead letters, itself.

    It is made when the first message is buried: before that there is nothing to do.
    """
    if is_dead_letters(name):
        return session.client.queue(name)
    view = session.client.queue(name).describe()
    if view.dlq_id is None:
        remark(f"{name} has no dead letters.")
        raise typer.Exit(ExitCode.NOTHING)
    return session.client.queue(view.dead_letter_queue or view.dlq_id)


def _watched(queue: SyncQueue, task: RedriveTask) -> RedriveTask:
    """Show how far a redrive is until it ends."""
    with progress() as bar:
        shown = bar.add_task("Sending back", total=None)
        try:
            while task.state == "running":
                total = None if task.remaining is None else task.moved_total + task.remaining
                bar.update(shown, completed=task.moved_total, total=total)
                time.sleep(POLL_S)
                task = queue.redrive_task(task.task_id)
        except KeyboardInterrupt:
            return queue.stop_redrive(task.task_id)
    return task


def _print_task(task: RedriveTask) -> None:
    verb = "Would send" if task.dry_run else "Sent"
    say(f"{verb} {counted(task.moved_total, 'message')} back from {task.dead_letter_queue}: {task.state}.")
    for queue, count in task.moved.items():
        say(f"  {count:,} to {queue}")
    if task.without_origin:
        remark(
            f"{counted(task.without_origin, 'message')} stay: their queue is gone. Name another with --target-queue."
        )
    if task.not_allowed:
        remark(f"{counted(task.not_allowed, 'message')} stay: the key may not send to the queue they came from.")
    for why in (task.error, task.reason):
        if why:
            remark(why)
    if task.state == "running":
        remark(f"It goes on at the server as task {task.task_id}.")
