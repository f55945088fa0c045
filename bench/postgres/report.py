"""The workloads, each measured for every side in turn, and the lines that say what was found.

Sides take turns within a round, and the order turns from round to round; a figure is the median of its rounds, and a
ratio that of two medians of one run. Each measurement has a database of its own in the one server, made for it and
dropped after it, so that no side pays for what another has left.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import psycopg

from bench.postgres import crowd, jobs
from bench.postgres.crowd import BOTH, CONSUME, SEND, Done, Work
from bench.postgres.sides import Side
from tests.postgres.servers import Server

BATCHES = (1, 10, 100, 1_000)
# More than any side consumes in a second, by batch.
_FILL_PER_S = {1: 8_000, 10: 40_000, 100: 120_000, 1_000: 200_000}
_SLOT_S = 10.0


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of one side, and how many times the first side's it is for the others to compare."""

    workload: str
    side: str
    figure: float
    unit: str
    remark: str = ""


@dataclass(slots=True)
class Bench:
    server: Server
    sides: Sequence[Side]
    seconds: float
    rounds: int
    # Told each figure when there is one: the table comes at the end, which may be an hour away.
    tell: Callable[[Line], None]
    lines: list[Line] = field(default_factory=list)

    @contextmanager
    def database(self) -> Iterator[str]:
        dsn = self.server.new_database()
        try:
            yield dsn
        finally:
            name = dsn.partition("?")[0].rpartition("/")[2]
            with psycopg.connect(self.server.dsn, autocommit=True) as connection:
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())

    def add(self, workload: str, side: str, figures: Sequence[float], unit: str, remark: str = "") -> None:
        line = Line(workload, side, median(figures), unit, remark)
        self.lines.append(line)
        self.tell(line)

    def turns(self) -> Iterator[Side]:
        """Every side once in each round, another first each time."""
        for turn in range(self.rounds):
            place = turn % len(self.sides)
            yield from [*self.sides[place:], *self.sides[:place]]


def throughput(bench: Bench, batches: Sequence[int] = BATCHES) -> None:
    """Send, lease and ack, and both at once, by batch."""
    for batch in batches:
        for kind in (SEND, CONSUME, BOTH):
            found: dict[str, list[Done]] = {side.name: [] for side in bench.sides}
            for side in bench.turns():
                with bench.database() as dsn:
                    found[side.name].append(_one(bench, side, dsn, Work(kind, batch, bench.seconds)))
            for name, done in found.items():
                remark = _remark(done, has_leases=kind != SEND)
                bench.add(f"{kind}, batch {batch}", name, [each.per_second for each in done], "msg/s", remark)


def _remark(done: Sequence[Done], *, has_leases: bool) -> str:
    server_us, clients_us = (median(each.cpu_us[part] for each in done) for part in (0, 1))
    costs = f"CPU µs a message: PostgreSQL {server_us:,.0f}, clients {clients_us:,.0f}"
    return costs + (f"; lease p50 {median(each.lease_ms(0.5) for each in done):.2f} ms" if has_leases else "")


def _one(bench: Bench, side: Side, dsn: str, work: Work) -> Done:
    asyncio.run(side.make(dsn))
    if work.kind == CONSUME:
        asyncio.run(crowd.fill(side, dsn, int(_FILL_PER_S[work.batch] * max(1.0, work.seconds))))
    return crowd.run(bench.server, side, dsn, work)


def worker(bench: Bench, count: int, ours: jobs.Measure | None) -> None:
    """Jobs that do nothing, through one worker process."""
    measures = {**({"Penstock": ours} if ours else {}), **jobs.PEERS}
    for name, measure in measures.items():
        # A peer that does a few hundred a second needs fewer of them to be measured.
        fewer = max(1_000, count // 10) if name == "Procrastinate" else count
        figures: list[float] = []
        for _ in range(bench.rounds):
            with bench.database() as dsn:
                figures.append(asyncio.run(measure(dsn, fewer)))
        bench.add("jobs through a worker", name, figures, "jobs/s")


def backlog(bench: Bench, sizes: Sequence[int]) -> None:
    """How long a lease of 100 takes before a small backlog and before a large one."""
    for side in bench.sides:
        for size in sizes:
            with bench.database() as dsn:
                asyncio.run(side.make(dsn))
                asyncio.run(crowd.fill(side, dsn, size))
                _analyze(dsn)
                # Of the small backlog something must be left at the end.
                done = [
                    crowd.run(bench.server, side, dsn, Work(BOTH, 100, bench.seconds), 1) for _ in range(bench.rounds)
                ]
            p99 = median(each.lease_ms(0.99) for each in done)
            figures = [each.lease_ms(0.5) for each in done]
            bench.add(f"lease of 100 before {size:,}", side.name, figures, "ms p50", f"p99 {p99:.2f} ms")


def pinned(bench: Bench, minutes: float, batch: int = 100) -> None:
    """How long leases take while a transaction holds the oldest snapshot, slot by slot, and before it does."""
    for side in bench.sides:
        with bench.database() as dsn:
            asyncio.run(side.make(dsn))
            healthy = crowd.run(bench.server, side, dsn, Work(BOTH, batch, max(bench.seconds, 5.0)))
            with psycopg.connect(dsn) as holder:
                holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT count(*) FROM pg_class")
                held = crowd.run(bench.server, side, dsn, Work(BOTH, batch, minutes * 60))
        bench.add("lease, healthy", side.name, [healthy.lease_ms(0.99)], "ms p99", f"{healthy.per_second:,.0f} msg/s")
        slots = [number * _SLOT_S for number in range(max(1, int(minutes * 60 / _SLOT_S)))]
        curve = [held.lease_ms(0.99, since_s=slot, until_s=slot + _SLOT_S) for slot in slots]
        bench.add(
            f"lease, snapshot held {minutes:g} min",
            side.name,
            [curve[-1]],
            "ms p99",
            f"{held.per_second:,.0f} msg/s; each {_SLOT_S:g} s: " + " ".join(f"{each:.1f}" for each in curve),
        )


def _analyze(dsn: str) -> None:
    """What autovacuum would have done long before so many had gathered."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
