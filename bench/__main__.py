"""``python -m bench``: run the workloads and print what they found."""

import json
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import Bench, Row, Workload, core, log, number, pipeline, pipeline_source, server, sqs, store, streams
from bench.processes import unwind_when_ended

REPORTS: dict[str, Sequence[Workload]] = {
    "The log, beside a plain loop of write and fdatasync": log.WORKLOADS,
    "The store, beside a queue table in SQLite": store.WORKLOADS,
    "The core of queues, alone": core.WORKLOADS,
    "The server over HTTP, beside Redis Streams": server.WORKLOADS,
    "Streams over the Kafka protocol, by librdkafka": streams.WORKLOADS,
    "SQS, beside moto's server": sqs.WORKLOADS,
    "The history in Spark, beside Spark's own Parquet": pipeline_source.WORKLOADS,
    "The pipeline on Spark, beside Spark's own Parquet": pipeline.WORKLOADS,
}
RESULTS = Path(__file__).parent / "results"
# Of a report that goes to a file or a pipe.
REPORT_WIDTH = 132


def main(
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this workload, or all with NAME in theirs. May be repeated."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what takes minutes or gigabytes, unless it is named by --only.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.01, help="How long to measure each side of each round.")] = 1.0,
    data: Annotated[Path | None, typer.Option(help="A folder on the disk to measure.", file_okay=False)] = None,
    report: Annotated[Path | None, typer.Option("--json", help="Write the results to a file.", dir_okay=False)] = None,
) -> None:
    """Measure the log, the store and the server, each beside what a team would use without us."""
    chosen = {title: _chosen(workloads, only or (), quick) for title, workloads in REPORTS.items()}
    chosen = {title: workloads for title, workloads in chosen.items() if workloads}
    if not chosen:
        names = [workload.name for workloads in REPORTS.values() for workload in workloads]
        raise typer.BadParameter("no such workload. There are: " + "; ".join(names), param_hint="--only")
    unwind_when_ended()
    with _folder(data) as folder:
        machine = _machine(folder)
        found = _run(chosen, folder, seconds)
    _print(found, machine)
    if report:
        results = {
            "machine": machine,
            "seconds": seconds,
            "rows": [asdict(row) | {"is_met": row.is_met} for rows in found.values() for row in rows],
        }
        report.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def _chosen(workloads: Sequence[Workload], only: Sequence[str], quick: bool) -> list[Workload]:
    """Return the workloads of these very names, or else those whose names contain one of them."""
    everything = [workload for others in REPORTS.values() for workload in others]
    if any(workload.name in only for workload in everything):
        return [workload for workload in workloads if workload.name in only]
    return [
        workload
        for workload in workloads
        if (any(name in workload.name for name in only) if only else not (quick and workload.is_long))
    ]


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    """Lend a folder on the disk to measure: by default on the one the checkout is on, which is no tmpfs."""
    above = data or RESULTS
    above.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(suffix=".tmp", dir=above) as made:
        yield Path(made)


def _run(chosen: dict[str, list[Workload]], folder: Path, seconds: float) -> dict[str, list[Row]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    found: dict[str, list[Row]] = {title: [] for title in chosen}
    # Drawn between measurements only: a bar that moves by itself takes the interpreter away from what is measured.
    with Progress(*columns, auto_refresh=False, transient=True) as progress:
        steps = sum(workload.steps for workloads in chosen.values() for workload in workloads)
        bar = progress.add_task("", total=steps)
        bench = Bench(folder, seconds, lambda: progress.update(bar, advance=1, refresh=True))
        for title, workloads in chosen.items():
            for workload in workloads:
                progress.update(bar, description=workload.name, refresh=True)
                found[title] += workload.run(bench)
    return found


def _print(found: dict[str, list[Row]], machine: dict[str, object]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=REPORT_WIDTH)
    for title, rows in found.items():
        console.print(_table(title, rows))
        for row in rows:
            if row.remark:
                console.print(f"  {row.name}: {row.remark}", highlight=False)
    console.print("  " + ", ".join(f"{name} {value}" for name, value in machine.items()), style="dim", highlight=False)


def _table(title: str, rows: Sequence[Row]) -> Table:
    """Lay out the columns that any row has something in."""
    table = Table(title=title, box=SIMPLE_HEAD)
    table.add_column("workload", no_wrap=True)
    cells = [_cells(row) for row in rows]
    headings = [heading for heading in cells[0] if any(row[heading] for row in cells)]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row, values in zip(rows, cells, strict=True):
        style = {True: "green", False: "red", None: ""}[row.is_met]
        table.add_row(row.name, *(values[heading] for heading in headings), style=style)
    return table


def _cells(row: Row) -> dict[str, str]:
    bound = "" if row.ack_ms_p99_max is None else f" (< {_number(row.ack_ms_p99_max)})"
    return {
        "figure": f"{_number(row.figure)} {row.unit}",
        "target": f"{'<' if row.is_ceiling else '≥'} {_number(row.target)}" if row.target is not None else "",
        "× one\nthread": _number(row.to_one_thread),
        "× as many\nthreads": _number(row.to_many_threads),
        "× SQLite": _number(row.to_sqlite),
        "× SQLite,\nsingle": _number(row.to_sqlite_single),
        "× Redis": _number(row.to_redis),
        "× Parquet": _number(row.to_parquet),
        "ack ms\np50 / p99": _pair(row.ack_ms_p50, row.ack_ms_p99) + bound,
        "peer ms\np50 / p99": _pair(row.peer_ms_p50, row.peer_ms_p99),
        "CPU µs\na message": _number(row.cpu_us),
        "peer's": _number(row.peer_cpu_us),
    }


def _pair(p50: float | None, p99: float | None) -> str:
    return "" if p50 is None else f"{_number(p50)} / {_number(p99)}"


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


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


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
app.command()(main)

if __name__ == "__main__":
    app()
