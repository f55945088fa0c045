"""`penstock top`: what the queues are doing, once a second.

A sample is everything that one look at the server shows; two samples make rates. The totals of a server begin at zero
when it starts, so a fall is a restart.
"""

import os
import select
import sys
import termios
import time
import tty
from dataclasses import dataclass, field
from types import TracebackType
from typing import Annotated, Any, Self

import msgspec
import typer
from rich.live import Live
from rich.table import Table

from penstock.cli.config import Session, asks_server
from penstock.cli.output import console, duration, print_json, table
from penstock.client import ConnectionFailed, QueueNotFound, ServerBusy
from penstock.contract.messages import PRIORITIES
from penstock.wire.queues import QueueName

SHOWN_MAX = 30
# Lines of the screen that are not rows of the table.
# On a narrower screen priorities have short names, and on a narrow one there is no room for them.
WIDE_COLUMNS = 130
MIDDLE_COLUMNS = 105
FRAME_LINES = 4
RATES = ("sent", "received", "acked")


@dataclass(frozen=True, slots=True)
class Sample:
    """The queues at one moment, the fullest first, and how many messages of those shown are ready by tier."""

    at_s: float
    queues: list[QueueName]
    ready: dict[str, list[int]] = field(default_factory=dict)


@asks_server
def top(
    session: Session,
    *,
    prefix: Annotated[str, typer.Option(help="Only queues whose names begin so.")] = "",
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False,
) -> None:
    """Show what the queues are doing, until q or Ctrl-C.

    Rates are messages in a second. The columns of the priorities say how many are
    ready in each; oldest is how long the oldest of them has waited. With --json each
    look is one line, for ever, or one with --once.

    [bold]Examples:[/]

    penstock top
    penstock top --once
    penstock top --prefix orders --interval 5 --json
    """
    if once or not (console.is_terminal or session.is_json):
        sample = look(session, prefix)
        print_json(_lines(None, sample)) if session.is_json else console.print(drawn(None, sample))
    elif session.is_json:
        _print_lines(session, prefix, interval)
    else:
        _watch(session, prefix, interval)


def look(session: Session, prefix: str, most: int = SHOWN_MAX) -> Sample:
    """Ask the server once."""
    queues = sorted(session.client.queues(prefix), key=lambda row: (-row.current_message_count, row.queue_name))
    ready: dict[str, list[int]] = {}
    for row in queues[:most]:
        try:
            ready[row.queue_name] = [tier.ready for tier in session.client.queue(row.queue_name).describe().by_tier]
        except QueueNotFound:
            # Deleted since it was listed.
            continue
    return Sample(time.monotonic(), queues, ready)


def rates(before: Sample | None, now: Sample, queue: QueueName) -> dict[str, float | None]:
    """Return how much a queue did in a second between two looks; None where that is not known."""
    old = next((row for row in before.queues if row.queue_id == queue.queue_id), None) if before else None
    if before is None or old is None or now.at_s <= before.at_s:
        return dict.fromkeys(RATES)
    found: dict[str, float | None] = {}
    for name in RATES:
        grown = getattr(queue.totals, name) - getattr(old.totals, name)
        found[name] = (grown if grown >= 0 else getattr(queue.totals, name)) / (now.at_s - before.at_s)
    return found


def drawn(before: Sample | None, now: Sample, most: int = SHOWN_MAX) -> Table:
    counts = ("ready", "in flight", "delayed")
    speeds = tuple(f"{name}/s" for name in RATES)
    tiers = _tier_names(console.width)
    numbers = [*counts, *speeds, "oldest", *tiers]
    rows = []
    for queue in now.queues[:most]:
        speed = ["-" if rate is None else f"{rate:,.0f}" for rate in rates(before, now, queue).values()]
        waiting = [f"{ready:,}" if ready else "·" for ready in now.ready.get(queue.queue_name, [])]
        held = (queue.ready, queue.in_flight, queue.delayed)
        name = f"{queue.queue_name} (paused)" if queue.paused else queue.queue_name
        rows.append((name, *held, *speed, duration(queue.oldest_age_s), *waiting[: len(tiers)]))
    shown = table("queue", *numbers, numbers=numbers, rows=rows)
    hidden = len(now.queues) - most
    shown.caption = f"and {hidden:,} more" if hidden > 0 else None
    return shown


def _tier_names(columns: int) -> list[str]:
    if columns >= WIDE_COLUMNS:
        return list(PRIORITIES)
    return [name[:4] for name in PRIORITIES] if columns >= MIDDLE_COLUMNS else []


def _watch(session: Session, prefix: str, interval_s: float) -> None:
    before: Sample | None = None
    with Keyboard() as keyboard, Live(console=console, screen=True, auto_refresh=False) as screen:
        while True:
            most = max(1, min(SHOWN_MAX, console.height - FRAME_LINES))
            try:
                sample = look(session, prefix, most)
                screen.update(drawn(before, sample, most), refresh=True)
                before = sample
            except (ConnectionFailed, ServerBusy) as error:
                # Wait for a server that restarts, not for one that never answered.
                if before is None:
                    raise
                lost = drawn(None, before, most)
                lost.caption = f"No answer since {duration(time.monotonic() - before.at_s)}: {error.detail}"
                screen.update(lost, refresh=True)
            if keyboard.wait(interval_s) in {"q", "Q", "\x03"}:
                return


def _print_lines(session: Session, prefix: str, interval_s: float) -> None:
    before: Sample | None = None
    while True:
        sample = look(session, prefix)
        print_json(_lines(before, sample))
        before = sample
        time.sleep(interval_s)


def _lines(before: Sample | None, now: Sample) -> dict[str, Any]:
    return {
        "at": time.time(),
        "queues": [
            {
                **msgspec.to_builtins(queue),
                "rates": rates(before, now, queue),
                "ready_by_priority": dict(zip(PRIORITIES, now.ready.get(queue.queue_name, []), strict=False)),
            }
            for queue in now.queues
        ],
    }


class Keyboard:
    """Reads keys while entered. Without a terminal to read from there are none, and waiting is all it does."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            # Keys come at once and are not shown; Ctrl-C still interrupts.
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """Return the key that is pressed within the time, empty if none is."""
        if self._before is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if ready else ""
