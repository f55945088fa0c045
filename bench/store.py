"""The workloads of the embedded store, beside a queue table in SQLite in the same minutes.

    round 1                           round 7
    store │ SQLite │ SQLite     …     store │ SQLite │ SQLite

Messages are 256 random bytes each, and the policy is the default: no answer
before its fsync. A message counts when it was sent, leased and acked; the peer
serves the same tasks with the same batches (`traffic.py`, `sqlite.py`).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import NamedTuple

from bench import Bench, Row, Workload, peer, sqlite, traffic
from bench.log import ROUNDS, ratio, turned
from bench.traffic import Crowd, Traffic
from penstock.contract.limits import MIB
from penstock.log.settings import LogSettings

MILLION = 1_000_000
RESTARTS = 3
FILLERS = Crowd(callers=10, batch=100)
BUSY = Crowd(callers=32, batch=100)
# Few enough that their own work is no stall: what is left is what the store does besides.
CALM = Crowd(callers=6, batch=100)
SMALL_SEGMENTS = LogSettings(segment_bytes_max=8 * MIB)
BEAT_SECONDS = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    """Senders and consumers on one queue, at once."""

    name: str
    crowd: Crowd
    target: float
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        ours, shared, single = list[Traffic](), list[Traffic](), list[Traffic]()
        sides: list[tuple[Callable[[Path], Traffic], list[Traffic]]] = [
            (lambda folder: asyncio.run(_cycles(folder, self.crowd, bench.seconds)), ours),
            (lambda folder: asyncio.run(_peer_cycles(folder, self.crowd, bench.seconds, shares_commits=True)), shared),
            (lambda folder: asyncio.run(_peer_cycles(folder, self.crowd, bench.seconds, shares_commits=False)), single),
        ]
        for turn in range(ROUNDS):
            for measure, found in turned(sides, turn):
                with bench.folder() as folder:
                    found.append(measure(folder))
            bench.step_done()
        return [self._row(ours, shared, single)]

    def _row(self, ours: list[Traffic], shared: list[Traffic], single: list[Traffic]) -> Row:
        rates = _rates(ours)
        verbs = [f"{verb} {_waits(ours, verb, 0.5):.3g} / {_waits(ours, verb, 0.99):.3g}" for verb in ours[0].waits_ms]
        return Row(
            name=self.name,
            figure=median(rates),
            unit="msg/s",
            target=self.target,
            to_sqlite=ratio(rates, _rates(shared)),
            to_sqlite_single=ratio(rates, _rates(single)),
            ack_ms_p50=_waits(ours, "ack", 0.5),
            ack_ms_p99=_waits(ours, "ack", 0.99),
            peer_ms_p50=_waits(shared, "ack", 0.5),
            peer_ms_p99=_waits(shared, "ack", 0.99),
            cpu_us=median(each.cpu_us for each in ours),
            peer_cpu_us=median(each.cpu_us for each in shared),
            rounds=tuple(rates),
            remark=f"ms p50 / p99: {', '.join(verbs)}; SQLite {median(_rates(shared)):,.0f} msg/s, "
            f"{median(_rates(single)):,.0f} with a transaction for each call",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyQueues:
    """The same crowd on many queues as on one: what a queue costs by being one more."""

    name: str
    queues: int
    ratio_min: float
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        one, many = list[Traffic](), list[Traffic]()
        for turn in range(ROUNDS):
            for queues, found in turned([(1, one), (self.queues, many)], turn):
                with bench.folder() as folder:
                    found.append(asyncio.run(_cycles(folder, BUSY, bench.seconds, queues)))
            bench.step_done()
        return [_compared(self.name, self.ratio_min, many, one)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The same crowd before a large backlog and a small one.

    The figure is CPU time: what is to be flat is the cost of a message.
    """

    name: str
    small: int
    large: int
    ratio_min: float
    steps: int = 1 + ROUNDS
    is_long: bool = True

    def run(self, bench: Bench) -> list[Row]:
        with bench.folder() as small, bench.folder() as large:
            return asyncio.run(self._run(bench, small, large))

    async def _run(self, bench: Bench, small: Path, large: Path) -> list[Row]:
        few, many = list[Traffic](), list[Traffic]()
        async with traffic.opened(small) as small_store, traffic.opened(large) as large_store:
            sides = [(small_store, few), (large_store, many)]
            for store, messages in ((small_store, self.small), (large_store, self.large)):
                (queue,) = await traffic.make_queues(store, 1)
                await traffic.fill(store, queue, messages, FILLERS)
            bench.step_done()
            for turn in range(ROUNDS):
                for store, found in turned(sides, turn):
                    found.append(await traffic.run(store, [queue], BUSY, bench.seconds))
                bench.step_done()
        rates = [_compared(self.name, None, many, few)]
        costs = ratio([each.cpu_us for each in few], [each.cpu_us for each in many])
        return [
            Row(
                name=self.name,
                figure=costs,
                unit="×",
                target=self.ratio_min,
                cpu_us=median(each.cpu_us for each in many),
                rounds=tuple(a.cpu_us / b.cpu_us for a, b in zip(few, many, strict=True)),
                remark=f"CPU time for each message; {median(each.cpu_us for each in few):.3g} µs with a backlog of "
                f"{self.small:,}. By the clock {rates[0].figure:.2f} ×: {rates[0].remark}",
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Opening a store that was stopped cleanly with so many live messages."""

    name: str
    live: int
    open_s_max: float
    steps: int = 1 + RESTARTS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        cold, warm = list[float](), list[float]()
        with bench.folder() as folder:
            asyncio.run(_filled(folder, self.live))
            bench.step_done()
            for _ in range(RESTARTS):
                peer.forget_cached(folder)
                cold.append(asyncio.run(_open_seconds(folder, self.live)))
                warm.append(asyncio.run(_open_seconds(folder, self.live)))
                bench.step_done()
            size_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        return [
            Row(
                name=self.name,
                figure=median(cold),
                unit="s",
                target=self.open_s_max,
                is_ceiling=True,
                rounds=tuple(cold),
                remark=f"clean stop, {size_bytes / 1e6:,.0f} MB not in memory; {median(warm):.3g} s when in memory",
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """The longest time the event loop did not come round, while segments roll and a heap of messages lies there."""

    name: str
    lying: int
    stall_ms_max: float
    steps: int = 2
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        with bench.folder() as folder:
            return [asyncio.run(self._run(folder, bench))]

    async def _run(self, folder: Path, bench: Bench) -> Row:
        async with traffic.opened(folder, SMALL_SEGMENTS) as store:
            busy, lying = await traffic.make_queues(store, 2)
            await traffic.fill(store, lying, self.lying, FILLERS)
            bench.step_done()
            gaps = list[Gap]()
            async with asyncio.TaskGroup() as group:
                heart = group.create_task(_beat(gaps))
                found = await traffic.run(store, [busy], CALM, bench.seconds * ROUNDS)
                heart.cancel()
            bench.step_done()
        longest = max(gaps)
        return Row(
            name=self.name,
            figure=longest.ms,
            unit="ms",
            target=self.stall_ms_max,
            is_ceiling=True,
            cpu_us=found.cpu_us,
            remark=f"in which the loop had {longest.cpu_ms:.3g} ms of CPU time; p99 of {len(gaps):,} beats "
            f"{peer.percentile([gap.ms for gap in gaps], 0.99):.3g} ms, most CPU time in one "
            f"{max(gap.cpu_ms for gap in gaps):.3g} ms; at {found.per_second:,.0f} msg/s",
        )


WORKLOADS: tuple[Workload, ...] = (
    Cycles(name="queue, batch 100", crowd=BUSY, target=300_000),
    Cycles(name="queue, batch 1", crowd=Crowd(callers=64, batch=1), target=25_000),
    ManyQueues(name="1,000 queues", queues=1_000, ratio_min=0.8),
    Stall(name="stall", lying=MILLION, stall_ms_max=20),
    Restart(name="restart, 1 million", live=MILLION, open_s_max=2),
    Restart(name="restart, 10 million", live=10 * MILLION, open_s_max=20, is_long=True),
    Backlog(name="backlog, 10 million", small=1_000, large=10 * MILLION, ratio_min=0.9),
)


async def _cycles(root: Path, crowd: Crowd, seconds: float, queues: int = 1) -> Traffic:
    async with traffic.opened(root) as store:
        names = await traffic.make_queues(store, queues)
        return await traffic.run(store, names, crowd, seconds)


async def _peer_cycles(folder: Path, crowd: Crowd, seconds: float, *, shares_commits: bool) -> Traffic:
    async with sqlite.opened(folder, shares_commits=shares_commits) as table:
        return await traffic.run(table, ["queue"], crowd, seconds)


async def _filled(root: Path, messages: int) -> None:
    async with traffic.opened(root) as store:
        (queue,) = await traffic.make_queues(store, 1)
        await traffic.fill(store, queue, messages, FILLERS)


async def _open_seconds(root: Path, messages: int) -> float:
    began = perf_counter()
    async with traffic.opened(root) as store:
        seconds = perf_counter() - began
        assert (await store.counts("queue-0")).live == messages
        return seconds


class Gap(NamedTuple):
    """How long the loop did not come round, and how much of it its thread was running."""

    ms: float
    cpu_ms: float


async def _beat(gaps: list[Gap]) -> None:
    before, cpu_before = perf_counter(), thread_time()
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        now, cpu_now = perf_counter(), thread_time()
        gaps.append(Gap((now - before) * 1_000, (cpu_now - cpu_before) * 1_000))
        before, cpu_before = now, cpu_now


def _compared(name: str, target: float | None, ours: Sequence[Traffic], theirs: Sequence[Traffic]) -> Row:
    rates, others = _rates(ours), _rates(theirs)
    return Row(
        name=name,
        figure=ratio(rates, others),
        unit="×",
        target=target,
        cpu_us=median(each.cpu_us for each in ours),
        rounds=tuple(our / their for our, their in zip(rates, others, strict=True)),
        remark=f"{median(rates):,.0f} msg/s against {median(others):,.0f}; CPU "
        f"{median(each.cpu_us for each in ours):.3g} µs for each message against "
        f"{median(each.cpu_us for each in theirs):.3g}",
    )


def _rates(found: Sequence[Traffic]) -> list[float]:
    return [each.per_second for each in found]


def _waits(found: Sequence[Traffic], verb: str, share: float) -> float:
    return peer.percentile([wait for each in found for wait in each.waits_ms[verb]], share)
