"""The workloads of the log, each beside a plain loop in the same minutes.

    round 1        round 2              round 7
    plain │ log    plain │ log    …     plain │ log

    figure = the log's median round      ratio = the median of the rounds' ratios

Disks and shared machines change their mood from one second to the next, so the
peer runs in turn with the log and never before or after all of it. Acks are
timed from before the reservation to the return of `wait_durable`.

Messages are 256 random bytes each. Unless a workload says that it encodes, its
batch was encoded beforehand, as a producer's batch passes through the log.
"""

import asyncio
import os
import shutil
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TypeVar

from bench import Bench, Row, Workload, peer
from bench.peer import Tally, Window
from penstock import frame
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.settings import LogSettings
from penstock.runtime.system import ThreadWorkers, halt, system_runtime

MESSAGE_BYTES = 256
ROUNDS = 7
READ_LOG_BYTES = 512 << 20
GB = 1_000_000_000
LARGE_LOG_BYTES = 10 * GB
FREE_BYTES_MIN = 25 * GB

T = TypeVar("T")
# Returns the batch to append next.
Batches = Callable[[], bytearray]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainDisk:
    """The disk alone, at the size of a large commit: what no log can be faster than."""

    name: str
    size_bytes: int
    steps: int = 1
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        with bench.folder() as folder:
            found = peer.one_thread(folder, os.urandom(self.size_bytes), bench.seconds)
        bench.step_done()
        return [
            Row(
                name=self.name,
                figure=found.per_second * self.size_bytes / 1e6,
                unit="MB/s",
                peer_ms_p50=peer.percentile(found.waits_ms, 0.5),
                peer_ms_p99=peer.percentile(found.waits_ms, 0.99),
                remark="write and fdatasync without us",
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Appends:
    """Appenders that each append a batch, wait until it is durable, and append the next."""

    name: str
    appenders: int
    messages: int
    target: float | None
    ack_ms_p99_max: float | None = None
    encodes: bool = False
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        batches, seconds = encoding(self.messages) if self.encodes else encoded(self.messages), bench.seconds
        logs, ones, manies = list[Tally](), list[Tally](), list[Tally]()
        sides: list[tuple[Callable[[Path], Tally], list[Tally]]] = [
            (lambda folder: asyncio.run(_append(folder, batches, self.appenders, seconds)), logs),
            (lambda folder: peer.one_thread(folder, batches(), seconds), ones),
        ]
        if self.appenders > 1:
            sides.append((lambda folder: peer.many_threads(folder, batches(), self.appenders, seconds), manies))
        for turn in range(ROUNDS):
            for measure, tallies in turned(sides, turn):
                with bench.folder() as folder:
                    tallies.append(measure(folder))
            bench.step_done()
        return [self._row(logs, ones, manies)]

    def _row(self, logs: list[Tally], ones: list[Tally], manies: list[Tally]) -> Row:
        rates = [tally.per_second for tally in logs]
        waits_ms, plain_ms = peer.all_waits_ms(logs), peer.all_waits_ms(ones)
        return Row(
            name=self.name,
            figure=median(rates) * self.messages,
            unit="msg/s",
            target=self.target,
            to_one_thread=ratio(rates, [tally.per_second for tally in ones]),
            to_many_threads=ratio(rates, [tally.per_second for tally in manies]) if manies else None,
            ack_ms_p50=peer.percentile(waits_ms, 0.5),
            ack_ms_p99=peer.percentile(waits_ms, 0.99),
            ack_ms_p99_max=self.ack_ms_p99_max,
            peer_ms_p50=peer.percentile(plain_ms, 0.5),
            peer_ms_p99=peer.percentile(plain_ms, 0.99),
            rounds=tuple(rate * self.messages for rate in rates),
            remark="frame.pack and record.encode for each append" if self.encodes else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """One reader from the first offset to the last, over and over."""

    name: str
    messages: int
    target: float
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        batches = encoded(self.messages)
        messages_per_read = self.messages * peer.READ_BYTES / len(batches())
        rates, plain_rates = list[float](), list[float]()
        for _ in range(ROUNDS):
            with bench.folder() as folder:
                plain = peer.reading(folder, READ_LOG_BYTES, bench.seconds)
                plain_rates.append(plain.per_second * messages_per_read)
            with bench.folder() as folder:
                asyncio.run(_fill(folder, batches, READ_LOG_BYTES, appenders=32))
                rates.append(asyncio.run(_read_rate(folder, bench.seconds)))
            bench.step_done()
        return [
            Row(
                name=self.name,
                figure=median(rates),
                unit="msg/s",
                target=self.target,
                to_one_thread=ratio(rates, plain_rates),
                rounds=tuple(rates),
                remark="CRC checked, from memory; the plain loop is pread of 1 MiB, unchecked",
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeLog:
    """A large log: how long it takes to open, and whether appending to it costs more than to a new one."""

    name: str
    open_s_max: float
    rate_ratio_min: float
    steps: int = 1 + 2 * ROUNDS
    is_long: bool = True

    def run(self, bench: Bench) -> list[Row]:
        size_bytes = _affordable_bytes(bench.data)
        with bench.folder() as folder:
            asyncio.run(_fill(folder, encoded(4_000), size_bytes, appenders=4))
            bench.step_done()
            return [self._open(folder, bench, size_bytes), self._flat(folder, bench, size_bytes)]

    def _open(self, folder: Path, bench: Bench, size_bytes: int) -> Row:
        cold, warm = list[float](), list[float]()
        for _ in range(ROUNDS):
            peer.forget_cached(folder)
            cold.append(asyncio.run(_open_seconds(folder)))
            warm.append(asyncio.run(_open_seconds(folder)))
            bench.step_done()
        return Row(
            name=f"{self.name}: open",
            figure=median(cold),
            unit="s",
            target=self.open_s_max,
            is_ceiling=True,
            rounds=tuple(cold),
            remark=f"{size_bytes / GB:.1f} GB, clean stop, not in memory; {median(warm):.3f} s when in memory",
        )

    def _flat(self, large: Path, bench: Bench, size_bytes: int) -> Row:
        batches, old, new = encoded(100), list[float](), list[float]()
        for turn in range(ROUNDS):
            with bench.folder() as empty:
                for root, rates in turned([(large, old), (empty, new)], turn):
                    rates.append(asyncio.run(_append(root, batches, 32, bench.seconds)).per_second * 100)
            bench.step_done()
        return Row(
            name=f"{self.name}: append",
            figure=ratio(old, new),
            unit="×",
            target=self.rate_ratio_min,
            rounds=tuple(late / early for late, early in zip(old, new, strict=True)),
            remark=f"{median(old):,.0f} msg/s after {size_bytes / GB:.1f} GB, {median(new):,.0f} in an empty log",
        )


WORKLOADS: tuple[Workload, ...] = (
    PlainDisk(name="disk, 4 KiB", size_bytes=4 << 10),
    PlainDisk(name="disk, 1 MiB", size_bytes=1 << 20),
    Appends(name="1 appender, batch 100", appenders=1, messages=100, target=200_000),
    Appends(name="32 appenders, batch 1", appenders=32, messages=1, target=50_000, ack_ms_p99_max=2),
    Appends(name="32 appenders, batch 100", appenders=32, messages=100, target=2_000_000),
    # Encoding shows where the event loop is the limit, not where one appender waits for the disk.
    Appends(name="32 encoders, batch 1", appenders=32, messages=1, target=None, encodes=True),
    Appends(name="32 encoders, batch 100", appenders=32, messages=100, target=None, encodes=True),
    Reads(name="read, batch 100", messages=100, target=5_000_000),
    LargeLog(name="large log", open_s_max=1, rate_ratio_min=0.9),
)


def encoded(messages: int) -> Batches:
    """Return the same batch each time, of so many records."""
    batch = record.encode([(None, os.urandom(MESSAGE_BYTES)) for _ in range(messages)], at_ms=0)
    return lambda: batch


def encoding(messages: int) -> Batches:
    """Make a new batch each time: one record, whose value is a frame of so many bodies."""
    bodies = [os.urandom(MESSAGE_BYTES) for _ in range(messages)]
    return lambda: record.encode([(b"sent", frame.pack([frame.Blobs.of(bodies)]))], at_ms=0)


@asynccontextmanager
async def _opened(root: Path) -> AsyncIterator[DiskLog]:
    async with ThreadWorkers(1, halt) as workers:
        log = await DiskLog.open(system_runtime(root, workers), "log", LogSettings(sync="batch"))
        try:
            yield log
        finally:
            await log.close()


async def _open_seconds(root: Path) -> float:
    began = perf_counter()
    async with _opened(root):
        return perf_counter() - began


async def _append(root: Path, batches: Batches, appenders: int, seconds: float) -> Tally:
    waits_ms: array[float] = array("d")
    async with _opened(root) as log:
        window = Window.lasting(seconds)
        async with asyncio.TaskGroup() as group:
            for _ in range(appenders):
                group.create_task(_appender(log, batches, window, waits_ms))
        return Tally(perf_counter() - window.since, waits_ms)


async def _appender(log: DiskLog, batches: Batches, window: Window, waits_ms: "array[float]") -> None:
    while (began := perf_counter()) < window.until:
        await _append_one(log, batches())
        if began >= window.since:
            waits_ms.append((perf_counter() - began) * 1_000)


async def _append_one(log: DiskLog, batch: bytes | bytearray) -> None:
    with log.reserve(len(batch)) as space:
        log.append(batch, space)
    await log.wait_durable(log.end_offset)


async def _fill(root: Path, batches: Batches, size_bytes: int, appenders: int) -> None:
    share = size_bytes // len(batches()) // appenders

    async def fill_share(log: DiskLog) -> None:
        for _ in range(share):
            await _append_one(log, batches())

    async with _opened(root) as log, asyncio.TaskGroup() as group:
        for _ in range(appenders):
            group.create_task(fill_share(log))


async def _read_rate(root: Path, seconds: float) -> float:
    """Return messages per second, told by the offsets of what came back."""
    count = 0
    async with _opened(root) as log:
        window = Window.lasting(seconds)
        offset = log.start_offset
        while (began := perf_counter()) < window.until:
            views = await log.read(offset, bytes_max=peer.READ_BYTES)
            end = record.header(views[-1]).next_offset
            count += end - offset if began >= window.since else 0
            offset = end if end < log.durable_offset else log.start_offset
        return count / (perf_counter() - window.since)


def turned(sides: Sequence[T], turn: int) -> Sequence[T]:
    """Let another side go first in each round: the next one may pay for what was left to the disk."""
    first = turn % len(sides)
    return (*sides[first:], *sides[:first])


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return median(our / their for our, their in zip(ours, theirs, strict=True))


def _affordable_bytes(data: Path) -> int:
    free = shutil.disk_usage(data).free
    return LARGE_LOG_BYTES if free >= FREE_BYTES_MIN else min(LARGE_LOG_BYTES, free * 2 // 5)
