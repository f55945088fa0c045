"""``python -m bench.race``: race Penstock against its peers, and write a table, figures and plots."""

import asyncio
import os
import platform
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.processes import unwind_when_ended
from bench.race import report
from bench.race.backlog import Backlog, measure_backlog
from bench.race.sides import SIDES, Running, Side
from bench.race.workloads import WORKLOADS, Found, Workload, measure

RESULTS = Path(__file__).parent.parent / "results"
QUICK_S = 0.5
# What takes part in `--quick`: one setting of each server.
QUICK_SIDES = ("Penstock", "Redis Streams, always", "NATS JetStream", "RabbitMQ, quorum", "PGMQ")


def main(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="The main rows and sides, in under five minutes.")] = False,
    peers: Annotated[str, typer.Option(help="Only sides with one of these words in their name, by commas.")] = "",
    only: Annotated[str, typer.Option(help="Only workloads with this in their name; `backlog` is one.")] = "",
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="How long each measurement is. [default: 3]")] = None,
    backlogs: Annotated[str, typer.Option(help="Messages in the backlogs, by commas.")] = "1000000,10000000",
    data: Annotated[Path | None, typer.Option(help="A folder on the disk to measure.", file_okay=False)] = None,
    out: Annotated[Path, typer.Option(help="Where the table, the figures and the plots go.")] = RESULTS / "race",
) -> None:
    """Race Penstock against Redis Streams, NATS JetStream, RabbitMQ, PGMQ and moto on this machine."""
    unwind_when_ended()
    console = Console()
    sides = _sides(console, quick, peers)
    workloads = [each for each in WORKLOADS if only in each.name and (each.is_quick or not quick)]
    sizes = [] if quick or (only and only not in "backlog") else [int(each) for each in backlogs.split(",") if each]
    (data or RESULTS).mkdir(parents=True, exist_ok=True)
    began = datetime.now(UTC)
    lasts_s = seconds or (QUICK_S if quick else 3.0)
    with tempfile.TemporaryDirectory(suffix=".tmp", dir=data or RESULTS) as folder:
        race = _Race(sides, workloads, rounds, lasts_s, Path(folder))
        asyncio.run(race.run(sizes))
        machine = _machine(began, Path(folder)) | {"rounds": rounds, "seconds": lasts_s}
    written = report.write(out, sides, workloads, race.found, race.backlogs, machine)
    console.print(written.read_text(), highlight=False, markup=False, soft_wrap=True)
    console.print(f"in {out}: {', '.join(sorted(path.name for path in out.iterdir()))}", style="dim")


def _sides(console: Console, quick: bool, peers: str) -> list[Side]:
    words = [word.strip().lower() for word in peers.split(",") if word.strip()]
    chosen = []
    for side in SIDES:
        is_asked = any(word in side.name.lower() for word in words) if words else not quick or side.name in QUICK_SIDES
        if side.name != "Penstock" and not is_asked:
            continue
        missing = side.missing()
        if missing:
            console.print(f"{side.name} is left out: {missing}", style="yellow", highlight=False)
        else:
            chosen.append(side)
    return chosen


class _Race:
    def __init__(self, sides: list[Side], workloads: list[Workload], rounds: int, seconds: float, folder: Path) -> None:
        self._sides = sides
        self._workloads = workloads
        self._rounds = rounds
        self._seconds = seconds
        self._folder = folder
        self.found: dict[tuple[str, str], list[Found]] = {}
        self.backlogs: dict[tuple[str, int], Backlog] = {}

    async def run(self, sizes: list[int]) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, auto_refresh=False, transient=True) as progress:
            pairs = [(each, side) for each in self._workloads for side in self._sides if side.client in each.clients]
            total = len(pairs) * self._rounds + len(sizes) * len(self._sides)
            bar = progress.add_task("starting the servers", total=total)
            progress.refresh()
            await self._run_rounds(lambda text: progress.update(bar, description=text, advance=1, refresh=True))
            for size in sizes:
                for side in self._sides:
                    progress.update(bar, description=f"{side.name}, backlog of {size:,}", refresh=True)
                    self.backlogs[side.name, size] = await measure_backlog(side, size, self._folder, self._seconds)
                    progress.update(bar, advance=1, refresh=True)

    async def _run_rounds(self, done: "report.Done") -> None:
        if not self._workloads:
            return
        with ExitStack() as stack:
            servers: dict[str, Running] = {}
            for number, side in enumerate(self._sides):
                servers[side.name] = stack.enter_context(side.started(self._folder / f"side{number}"))
            for turn in range(self._rounds):
                for workload in self._workloads:
                    for side in self._sides[turn % len(self._sides) :] + self._sides[: turn % len(self._sides)]:
                        if side.client not in workload.clients:
                            continue
                        found = await measure(side, servers[side.name], workload, self._seconds, self._folder / "flow")
                        self.found.setdefault((workload.name, side.name), []).append(found)
                        done(f"{workload.name}: {side.name}")


def _machine(began: datetime, folder: Path) -> dict[str, object]:
    place = folder.resolve()
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = max((each for each in mounts if place.is_relative_to(each[1])), key=lambda each: len(each[1]))
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "date": began.date().isoformat(),
        "minutes": round((datetime.now(UTC) - began).total_seconds() / 60, 1),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory_kb / 1e6),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": mount[2],
        "load": round(os.getloadavg()[1], 1),
        "fdatasync_ms": _fdatasync_ms(folder),
    }


def _fdatasync_ms(folder: Path) -> float:
    """The median of a write of 512 bytes and its fdatasync, so that the figures can be read."""
    from statistics import median  # noqa: PLC0415
    from time import perf_counter  # noqa: PLC0415

    fd, took = os.open(folder / "sync", os.O_WRONLY | os.O_CREAT), []
    for _ in range(200):
        began = perf_counter()
        os.write(fd, bytes(512))
        os.fdatasync(fd)
        took.append((perf_counter() - began) * 1_000)
    os.close(fd)
    return round(median(took), 3)


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
app.command()(main)

if __name__ == "__main__":
    app()
