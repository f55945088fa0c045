"""`python -m bench.load`: ten users on fifteen queues for three minutes, for each store; ends with 1 after a failure.

The server is a process of its own with default settings, Locust another. With `--cpus` the server, not PostgreSQL and
not Locust, may use so much of a processor: a group of the kernel's CPU controller, below that of this process, holds
it back. Its memory is not limited but measured: the most that it ever had is printed.
"""

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from bench import processes
from tests.postgres.servers import Server as Database

STORES = ("embedded", "postgresql")
_PERIOD_US = 100_000
_CONTROLLER = Path("/sys/fs/cgroup/cpu")


@dataclass(frozen=True, slots=True)
class Figures:
    store: str
    requests: int
    failures: int
    per_second: float
    most_per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    cpu_s: float
    memory_mb_most: float

    def line(self) -> str:
        return (
            f"{self.store:10}  {self.requests:>8,} requests  {self.failures} failures  "
            f"{self.per_second:6,.0f}/s mean  {self.most_per_second:6,.0f}/s peak  "
            f"p50 {self.p50_ms:.0f} ms  p95 {self.p95_ms:.0f} ms  p99 {self.p99_ms:.0f} ms  "
            f"{self.cpu_s:.1f} s of CPU  {self.memory_mb_most:.0f} MB at most"
        )


def main(
    *,
    store: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(STORES)}. May be repeated.")] = None,
    users: Annotated[int, typer.Option(min=1)] = 10,
    seconds: Annotated[int, typer.Option(min=1, help="For how long, after all users have begun.")] = 180,
    cpus: Annotated[
        float | None, typer.Option(help="How much of a processor the server may use, such as 0.25.")
    ] = None,
) -> None:
    """Run the load and print what Locust saw."""
    processes.unwind_when_ended()
    found = [_measured(each, users, seconds, cpus) for each in store or STORES]
    raise typer.Exit(any(each.failures or not each.requests for each in found))


def _measured(store: str, users: int, seconds: int, cpus: float | None) -> Figures:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-load-")))
        options = ["--no-kafka"]
        if store == "postgresql":
            database = stack.enter_context(Database())
            options += ["--store", database.dsn]
        server = stack.enter_context(processes.penstock(folder, *options))
        if cpus is not None:
            stack.enter_context(held_back(server.pid, cpus))
        before = server.cpu()
        _run_locust(folder, server.url, users, seconds)
        cpu_s, memory_mb = server.cpu().since(before).total_s, _memory_mb_most(server.pid)
        figures = _read(folder, store, cpu_s, memory_mb)
    print(figures.line(), flush=True)
    return figures


def _run_locust(folder: Path, url: str, users: int, seconds: int) -> None:
    command = [
        sys.executable, "-m", "locust", "--locustfile", str(Path(__file__).with_name("locustfile.py")),
        "--headless", "--users", str(users), "--spawn-rate", str(users), "--run-time", f"{seconds}s", "--host", url,
        "--csv", str(folder / "load"), "--csv-full-history", "--only-summary", "--exit-code-on-error", "0",
        "--stop-timeout", "30",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise SystemExit(done.stderr)


def _read(folder: Path, store: str, cpu_s: float, memory_mb: float) -> Figures:
    """Return what Locust counted over all requests; its history has one line for each second."""
    with (folder / "load_stats.csv").open(newline="") as file:
        total = next(row for row in csv.DictReader(file) if row["Name"] == "Aggregated")
    with (folder / "load_stats_history.csv").open(newline="") as file:
        counts = {
            int(row["Timestamp"]): int(row["Total Request Count"])
            for row in csv.DictReader(file)
            if row["Name"] == "Aggregated"
        }
    # How much was added in each second; Locust's own rates are means of ten.
    rates = [(counts[later] - counts[at]) / (later - at) for at, later in pairwise(sorted(counts))]
    return Figures(
        store,
        int(total["Request Count"]),
        int(total["Failure Count"]),
        float(total["Requests/s"]),
        max(rates, default=0.0),
        float(total["50%"]),
        float(total["95%"]),
        float(total["99%"]),
        cpu_s,
        memory_mb,
    )


def _memory_mb_most(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1_024 / 1e6


@contextmanager
def held_back(pid: int, cpus: float) -> Iterator[None]:
    """Let a process use so much of a processor. It needs root, and the CPU controller of cgroup version 1."""
    own = next(
        line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":cpu:" in line or ":cpu," in line
    )
    group = _CONTROLLER / own.rpartition(":")[2].strip("/") / f"penstock-load-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(cpus * _PERIOD_US)))
        (group / "cgroup.procs").write_text(str(pid))
        yield
        print((group / "cpu.stat").read_text().replace("\n", "  "))
        (group.parent / "cgroup.procs").write_text(str(pid))
    finally:
        group.rmdir()


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
