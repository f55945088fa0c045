"""``python -m bench``: run the workloads and print what they found."""

import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import Bench, Row, Workload, core, log

WORKLOADS: tuple[Workload, ...] = (*log.WORKLOADS, *core.WORKLOADS)
RESULTS = Path(__file__).parent / "results"
# Of a report that goes to a file or a pipe.
REPORT_WIDTH = 120


@click.command()
@click.option(
    "--only", multiple=True, metavar="NAME", help="Only this workload, or all with NAME in theirs. May be repeated."
)
@click.option("--seconds", default=1.0, show_default=True, help="How long to measure each side of each round.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="A folder on the disk to measure.")
@click.option("--json", "report", type=click.Path(path_type=Path, dir_okay=False), help="Write the results to a file.")
def main(only: Sequence[str], seconds: float, data: Path | None, report: Path | None) -> None:
    """Measure the log beside a plain loop of write and fdatasync, and the core of queues alone."""
    chosen = _chosen(only)
    if not chosen:
        raise click.UsageError("no such workload. There are: " + "; ".join(workload.name for workload in WORKLOADS))
    # A kill must not leave gigabytes behind, so it unwinds like Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with _folder(data) as folder:
        machine = _machine(folder)
        rows = _run(chosen, folder, seconds)
    _print(rows, machine)
    if report:
        results = {
            "machine": machine,
            "seconds": seconds,
            "rows": [asdict(row) | {"is_met": row.is_met} for row in rows],
        }
        report.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def _chosen(only: Sequence[str]) -> list[Workload]:
    """Return the workloads of these very names, or else those whose names contain one of them."""
    named = [workload for workload in WORKLOADS if workload.name in only]
    return named or [workload for workload in WORKLOADS if not only or any(name in workload.name for name in only)]


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    """Lend a folder on the disk to measure: by default on the one the checkout is on, which is no tmpfs."""
    above = data or RESULTS
    above.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(suffix=".tmp", dir=above) as made:
        yield Path(made)


def _run(chosen: Sequence[Workload], folder: Path, seconds: float) -> list[Row]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    rows: list[Row] = []
    # Drawn between measurements only: a bar that moves by itself takes the interpreter away from what is measured.
    with Progress(*columns, auto_refresh=False, transient=True) as progress:
        bar = progress.add_task("", total=sum(workload.steps for workload in chosen))
        bench = Bench(folder, seconds, lambda: progress.update(bar, advance=1, refresh=True))
        for workload in chosen:
            progress.update(bar, description=workload.name, refresh=True)
            rows += workload.run(bench)
    return rows


def _print(rows: Sequence[Row], machine: dict[str, object]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=REPORT_WIDTH)
    console.print(_table(rows))
    for row in rows:
        if row.remark:
            console.print(f"  {row.name}: {row.remark}", highlight=False)
    console.print("  " + ", ".join(f"{name} {value}" for name, value in machine.items()), style="dim", highlight=False)


def _table(rows: Sequence[Row]) -> Table:
    table = Table(
        title="The log, beside a plain loop of write and fdatasync, and the core of queues, alone", box=SIMPLE_HEAD
    )
    table.add_column("workload", no_wrap=True)
    for heading in (
        "figure",
        "target",
        "× one\nthread",
        "× as many\nthreads",
        "ack ms\np50 / p99",
        "plain ms\np50 / p99",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row), style={True: "green", False: "red", None: ""}[row.is_met])
    return table


def _cells(row: Row) -> Iterator[str]:
    yield row.name
    yield f"{_number(row.figure)} {row.unit}"
    yield f"{'<' if row.is_ceiling else '≥'} {_number(row.target)}" if row.target is not None else ""
    yield _number(row.to_one_thread)
    yield _number(row.to_many_threads)
    bound = "" if row.ack_ms_p99_max is None else f" (< {_number(row.ack_ms_p99_max)})"
    yield _pair(row.ack_ms_p50, row.ack_ms_p99) + bound
    yield _pair(row.plain_ms_p50, row.plain_ms_p99)


def _pair(p50: float | None, p99: float | None) -> str:
    return "" if p50 is None else f"{_number(p50)} / {_number(p99)}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def _machine(folder: Path) -> dict[str, object]:
    return {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "file system": _file_system(folder),
    }


def _file_system(folder: Path) -> str:
    """Return the type of the file system ``folder`` is on, as the kernel names it."""
    place = folder.resolve()
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    holding = [mount for mount in mounts if place.is_relative_to(mount[1])]
    return max(holding, key=lambda mount: len(mount[1]))[2]


if __name__ == "__main__":
    main()
