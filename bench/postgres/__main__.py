"""``python -m bench.postgres``: run the workloads on one server of PostgreSQL and print what they found."""

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench import number
from bench.postgres import ours, report
from bench.postgres.report import Bench, Line
from bench.postgres.sides import PGMQ_MISSING, Side, pgmq
from tests.postgres.servers import Server

WORKLOADS = ("throughput", "worker", "backlog", "pinned")
# What a database of a team would have, in place of defaults made for the smallest machine.
OPTIONS = {"shared_buffers": "256MB", "max_wal_size": "4GB", "autovacuum_naptime": "10s"}


def main(
    *,
    only: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(WORKLOADS)}. May be repeated.")] = None,
    batch: Annotated[list[int] | None, typer.Option(help="Throughput at these batches only.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to measure each side of each round.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    jobs: Annotated[int, typer.Option(min=1_000, help="How many jobs go through a worker.")] = 20_000,
    large: Annotated[int, typer.Option(min=10_000, help="The large backlog, in messages.")] = 10_000_000,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long a snapshot is held under load.")] = 10.0,
    version: Annotated[
        int | None, typer.Option(help="The major version of PostgreSQL; the first found if none.")
    ] = None,
    results: Annotated[Path | None, typer.Option("--json", help="Write the results to a file.", dir_okay=False)] = None,
) -> None:
    """Measure the PostgreSQL store beside PGMQ, Procrastinate and PgQueuer."""
    console, errors = Console(width=132), Console(stderr=True, width=132)
    peer = pgmq()
    if peer is None:
        console.print(PGMQ_MISSING)
    sides: list[Side] = [ours.SIDE, *([peer] if peer else [])]
    chosen = only or WORKLOADS
    with Server(version, options=OPTIONS) as server:
        bench = Bench(server, sides, seconds, rounds, lambda line: errors.print(_told(line), highlight=False))
        if "throughput" in chosen:
            report.throughput(bench, batch or report.BATCHES)
        if "worker" in chosen:
            report.worker(bench, jobs, ours.jobs)
        if "backlog" in chosen:
            report.backlog(bench, (10_000, large))
        if "pinned" in chosen:
            report.pinned(bench, minutes)
        machine = {
            "PostgreSQL": server.programs.version,
            "python": platform.python_version(),
            "cores": len(os.sched_getaffinity(0)),
            "load": round(os.getloadavg()[0], 2),
        }
    console.print(_table(bench.lines))
    console.print("  " + ", ".join(f"{name} {value}" for name, value in machine.items()), highlight=False)
    if results:
        results.write_text(json.dumps({"machine": machine, "lines": [asdict(line) for line in bench.lines]}, indent=2))


def _told(line: Line) -> str:
    return f"{line.workload}, {line.side}: {number(line.figure)} {line.unit}"


def _table(lines: list[Line]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for heading in ("workload", "side", "figure", "Penstock ×", "remark"):
        table.add_column(heading, justify="right" if heading in {"figure", "Penstock ×"} else "left")
    for line in lines:
        table.add_row(line.workload, line.side, f"{number(line.figure)} {line.unit}", _ratio(lines, line), line.remark)
    return table


def _ratio(lines: list[Line], line: Line) -> str:
    """How many times our figure is the peer's; of times, how many times the peer's is ours: above 1 we are faster."""
    mine = next((each for each in lines if each.workload == line.workload and each.side == ours.SIDE.name), None)
    if mine is None or mine is line or not line.figure or not mine.figure:
        return ""
    ratio = mine.figure / line.figure
    return number(1 / ratio if line.unit.startswith("ms ") else ratio)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
