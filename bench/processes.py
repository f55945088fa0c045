"""Servers in processes of their own, and what a process has cost: CPU time and memory, as the kernel counts them.

A server has a folder that is lent to it, an address on this machine, and a session of its own: Ctrl-C reaches the
bench alone, which then ends the server in good order. Settings come from the command line only; neither the
environment nor a `penstock.toml` that happens to lie around has a say in what is measured.
"""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STOP_S_MAX = 20.0
_SOURCE = Path(__file__).parent.parent / "src"


class Cpu(NamedTuple):
    """CPU time, of all threads of a process."""

    user_s: float
    system_s: float

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s

    def since(self, before: "Cpu") -> "Cpu":
        return Cpu(self.user_s - before.user_s, self.system_s - before.system_s)


# Who is watched, by name, and how to ask what it has spent so far.
Clocks = Mapping[str, Callable[[], Cpu]]


def own_cpu() -> Cpu:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return Cpu(spent.ru_utime, spent.ru_stime)


def ended_children_cpu() -> Cpu:
    """Return what the processes have spent that we started and that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cpu(spent.ru_utime, spent.ru_stime)


def unwind_when_ended() -> None:
    """Let SIGTERM unwind like Ctrl-C: a kill must not leave gigabytes behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


class StartFailed(Exception):
    """A server ended, or fell silent, before it was ready."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, and which one."""

    kind: str
    url: str
    pid: int

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def cpu(self) -> Cpu:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return Cpu(int(fields[11]) / _TICKS_PER_S, int(fields[12]) / _TICKS_PER_S)

    def memory_mb(self) -> float:
        """Return how much of it is in memory now, in millions of bytes."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) * 1_024 / 1e6

    def clocks(self) -> Clocks:
        """It, and the client that this process is."""
        return {"server": self.cpu, "client": own_cpu}


@contextmanager
def penstock(folder: Path, *options: str, is_ahead: bool = False) -> Iterator[Server]:
    """Lend a server of ours, as a user starts it, or as one that goes before what else the machine does."""
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--data", str(folder / "data"), *options]
    with started(command, folder, "listens on ", is_ahead=is_ahead) as (line, pid):
        yield Server("penstock", line.split()[-1], pid)


def go_ahead(pid: int | str = "self") -> None:
    """Let the session of a process go before what else the machine does: only root may."""
    Path(f"/proc/{pid}/autogroup").write_text("-20")


@contextmanager
def started(command: Sequence[str], folder: Path, ready: str, *, is_ahead: bool = False) -> Iterator[tuple[str, int]]:
    """Run a command in ``folder`` and lend the line that has ``ready`` in it, and the process's id."""
    notes = folder / "stderr"
    with (
        notes.open("wb") as errors,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            preexec_fn=go_ahead if is_ahead else None,  # noqa: PLW1509 - no thread is started before.
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = next((line for line in process.stdout if ready in line), None)
            if line is None:
                raise StartFailed(f"{' '.join(command)} did not start: {notes.read_text()[-2_000:]}")
            yield line, process.pid
        finally:
            _stop(process)


@asynccontextmanager
async def spawned(command: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command beside an event loop and lend it, its output piped. It has ended when the block ends."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment(), start_new_session=True, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()


def environment() -> dict[str, str]:
    """Return what a process of ours may see of our environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    # The server of this checkout, wherever it is started.
    return kept | {"PYTHONPATH": os.pathsep.join([str(_SOURCE), str(_SOURCE.parent)])}
