"""A race of single calls on a machine that has other work: ``python -m bench.race.in_turns``.

    send A ─ send B ─ send C ─ lease A ─ lease B ─ lease C ─ ack A ─ ack B ─ ack C ─ send B ─ send C ─ send A ─ …

One process calls the sides in turn, so that all have the same machine and the same disk at nearly the same moment.
What other processes take shows in the slow calls of every side. The fast ones, a tenth or a quarter of them, tell
what a call costs.
"""

import os
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
import uvloop

from bench.processes import unwind_when_ended
from bench.race.lines import SYNC_LINES, Line, opened
from bench.race.sides import SIDES, Running, Side

QUEUE = "turns"
MESSAGE_BYTES = 256
QUANTILES = (10, 25, 50, 90)
# By what is called, and then by side: how long each call took, in seconds.
Times = dict[str, dict[str, list[float]]]


def main(
    *,
    peers: Annotated[str, typer.Option(help="Words in the names of sides, by commas.")] = "penstock,always,pgmq",
    calls: Annotated[int, typer.Option(min=10, help="How often each side does each thing.")] = 2_000,
    is_sync: Annotated[bool, typer.Option("--sync", help="Blocking clients, where there are some.")] = False,
    data: Annotated[Path, typer.Option(help="A folder on the disk to measure.", file_okay=False)] = Path(),
) -> None:
    """Call Penstock and its peers in turn, one call at a time, and print how long calls took."""
    unwind_when_ended()
    words = peers.lower().split(",")
    sides = [each for each in SIDES if any(word in each.name.lower() for word in words) and not each.missing()]
    if is_sync:
        sides = [each for each in sides if each.client in SYNC_LINES]
    with tempfile.TemporaryDirectory(suffix=".tmp", dir=data.resolve()) as folder, ExitStack() as stack:
        running = {
            side: stack.enter_context(side.started(Path(folder, side.client + str(nth))))
            for nth, side in enumerate(sides)
        }
        times = uvloop.run(_call(running, calls, is_sync=is_sync))
    print(table(times))


async def _call(running: dict[Side, Running], calls: int, *, is_sync: bool) -> Times:
    async with AsyncExitStack() as stack:
        lines: dict[str, Line] = {}
        for side, server in running.items():
            opening = opened(side.client, server.url, [QUEUE], callers=1, is_sync=is_sync)
            lines[side.name], *_ = await stack.enter_async_context(opening)
        return await in_turns(lines, calls)


async def in_turns(lines: dict[str, Line], calls: int) -> Times:
    body, held = [os.urandom(MESSAGE_BYTES)], dict[str, Any]()

    async def lease(name: str) -> None:
        found, held[name] = await lines[name].lease(1, 0.0)
        assert found, f"{name} has lost a message"

    verbs: dict[str, Callable[[str], Awaitable[None]]] = {
        "send": lambda name: lines[name].send(body),
        "lease": lease,
        "ack": lambda name: lines[name].ack(held[name]),
    }
    times: Times = {verb: {name: [] for name in lines} for verb in verbs}
    names = list(lines)
    for _ in range(calls):
        names.append(names.pop(0))
        for verb, call in verbs.items():
            for name in names:
                began = perf_counter()
                await call(name)
                times[verb][name].append(perf_counter() - began)
    return times


def table(times: Times) -> str:
    """Return the quantiles of all calls in milliseconds, as Markdown."""
    rows = [f"| call | side | {' | '.join(f'{each} %' for each in QUANTILES)} |", "|---" * (2 + len(QUANTILES)) + "|"]
    for verb, by_side in times.items():
        for name, took in by_side.items():
            took.sort()
            cells = (f"{took[len(took) * each // 100] * 1_000:.2f}" for each in QUANTILES)
            rows.append(f"| {verb} | {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    typer.run(main)
