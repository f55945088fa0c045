"""What a server costs that has nothing to do: its memory, and its CPU time with thousands of long polls waiting.

Each connection asks, waits for its 20 seconds, is answered with nothing and asks again. All begin as fast as they can
be opened, so their answers come in the same rhythm; what is measured is one whole turn of it, after the first.

`python -m bench.idle_polls --polls 1000` measures another number of them, without the table.
"""

import asyncio
import resource
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
import uvloop

from bench import Bench, Row, processes, sdk
from bench.asking import connections
from bench.processes import Cpu, Server

WAIT_S = 20
REST_S = 1.0
# Files that a process has open besides its connections.
_SPARE_FILES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleServer:
    """Resident memory of a server with one empty queue, a moment after its start."""

    name: str
    memory_mb_max: float
    steps: int = 1
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        with bench.folder() as folder, processes.penstock(folder) as server:
            spent = uvloop.run(_rest(server))
            memory_mb = server.memory_mb()
        bench.step_done()
        return [
            Row(
                name=self.name,
                figure=memory_mb,
                unit="MB",
                target=self.memory_mb_max,
                is_ceiling=True,
                remark=f"{spent.total_s / REST_S:.1%} of a core while nothing is asked of it",
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePolls:
    """The share of a core that long polls take while no message comes."""

    name: str
    polls: int
    # In percent.
    share_max: float
    steps: int = 1
    is_long: bool = True

    def run(self, bench: Bench) -> list[Row]:
        polls = min(self.polls, _allowed_files() - _SPARE_FILES)
        with bench.folder() as folder, processes.penstock(folder) as server:
            row = uvloop.run(self._measured(server, polls))
        bench.step_done()
        return [row]

    async def _measured(self, server: Server, polls: int) -> Row:
        async with sdk.opened(server):
            pass
        path = f"/api/queues/{sdk.QUEUE}/messages?wait_s={WAIT_S}"
        began = perf_counter()
        async with connections(server.port, f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode(), polls) as tally:
            opened_s = perf_counter() - began
            await asyncio.sleep(WAIT_S + opened_s)
            before, answers, began = server.cpu(), tally.answers, perf_counter()
            await asyncio.sleep(WAIT_S)
            spent, seconds = server.cpu().since(before), perf_counter() - began
            answers, memory_mb = tally.answers - answers, server.memory_mb()
        assert not tally.failures
        return Row(
            name=self.name,
            figure=100 * spent.total_s / seconds,
            unit="% of a core",
            target=self.share_max,
            is_ceiling=True,
            remark=f"{polls:,} connections, opened in {opened_s:.1f} s; {answers / seconds:,.0f} answers a second, "
            f"CPU µs for each, user + system: {spent.user_s / answers * 1e6:.3g} + "
            f"{spent.system_s / answers * 1e6:.3g}; {memory_mb:.0f} MB",
        )


async def _rest(server: Server) -> Cpu:
    async with sdk.opened(server):
        pass
    before = server.cpu()
    await asyncio.sleep(REST_S)
    return server.cpu().since(before)


def _allowed_files() -> int:
    """Ask for as many open files as this process may have, and return how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def main(polls: Annotated[int, typer.Option(min=1, help="How many connections wait.")] = 10_000) -> None:
    """Measure what idle long polls cost a server."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), 1.0, lambda: None)
        (row,) = IdlePolls(name="", polls=polls, share_max=5).run(bench)
    print(f"{row.figure:.1f} {row.unit}; {row.remark}")


if __name__ == "__main__":
    typer.run(main)
