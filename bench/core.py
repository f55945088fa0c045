"""``python -m bench.core``: the queue's state machine alone, per second of CPU time, and its size in memory.

Nothing here writes to a disk: what is measured is deciding and applying. Each
figure of speed is the best of several short rounds, because the machine has other
things to do; each of memory is taken in a process of its own.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

from bench import Bench, Row, Workload
from penstock.contract.queue_settings import DedupScope, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.core.queue.queue import Queue

BATCH = 10
FULL = (1 << BATCH) - 1
START_MS = 1_700_000_000_000
BODIES = [b"x"] * BATCH
GROUPS = 1_000
MILLION = 1_000_000
ROUNDS = 7
# Of the seconds each side of a round has: there is no other side here, and a short round is seldom disturbed.
SHARE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    """Send, lease and ack batches of ten, with a backlog of a thousand messages."""

    name: str
    target: float
    settings: QueueSettings
    # The drafts of each turn.
    drafts: Callable[[int], Drafts]
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        rounds: list[float] = []
        for _ in range(ROUNDS):
            rounds.append(_cycles_per_second(self.settings, self.drafts, bench.seconds * SHARE))
            bench.step_done()
        row = Row(name=self.name, figure=max(rounds), unit="msg/CPU-s", target=self.target, rounds=tuple(rounds))
        return [row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What queues with very many messages take, in processes of their own, and how long time takes to pass there."""

    name: str
    # What to ask of ``python -m bench.core``.
    parts: tuple[str, ...]
    is_long: bool = True

    @property
    def steps(self) -> int:
        return len(self.parts)

    def run(self, bench: Bench) -> list[Row]:
        rows: list[Row] = []
        for part in self.parts:
            rows += _in_own_process(part)
            bench.step_done()
        return rows


def _workloads() -> Iterator[tuple[str, float, QueueSettings, Callable[[int], Drafts]]]:
    plain = Drafts(bodies=BODIES)
    mixed = Drafts(bodies=BODIES, tiers=bytes([0, 1, 2, 3, 4, 2, 2, 1, 3, 2]))
    names = [b"group-%d" % number for number in range(GROUPS)]
    grouped = [
        Drafts(bodies=BODIES, groups=[names[(first + row * 7) % GROUPS] for row in range(BATCH)])
        for first in range(GROUPS)
    ]
    live = QueueSettings(dedup_scope=DedupScope.LIVE)
    yield "plain", MILLION, QueueSettings(), lambda _: plain
    yield "mixed tiers", 300_000, QueueSettings(), lambda _: mixed
    yield "FIFO groups", 200_000, QueueSettings(is_fifo=True), lambda turn: grouped[turn % GROUPS]
    yield "fair groups", 200_000, QueueSettings(), lambda turn: grouped[turn % GROUPS]
    yield "ids, live", 200_000, live, _identified
    yield "ids, window", 200_000, QueueSettings(dedup_scope=DedupScope.WINDOW, dedup_window_ms=50), _identified


def _identified(turn: int) -> Drafts:
    return Drafts(bodies=BODIES, dedup_ids=[b"%d-%d" % (turn, row) for row in range(BATCH)])


def _cycles_per_second(settings: QueueSettings, drafts: Callable[[int], Drafts], seconds: float) -> float:
    """Send, lease and ack batches, with a backlog of a thousand, for some time."""
    queue, now_ms = Queue(1, settings), START_MS
    for turn in range(100):
        _send(queue, drafts(turn), now_ms)
    turn, done = 100, 0
    begun = process_time()
    while (spent := process_time() - begun) < seconds:
        for _ in range(50):
            turn += 1
            now_ms += turn % 10 == 0
            _send(queue, drafts(turn), now_ms)
            leased = queue.lease(BATCH, now_ms=now_ms, token=turn)
            assert leased is not None
            queue.apply(leased)
            acked = queue.ack(leased.lease, turn, FULL, now_ms=now_ms)
            assert acked is not None
            queue.apply(acked)
            done += acked.mask.bit_count()
    return done / spent


def _send(queue: Queue, drafts: Drafts, now_ms: int) -> None:
    event = queue.send(drafts, now_ms=now_ms).event
    assert event is not None
    queue.apply(event)


def _in_own_process(what: str) -> Iterator[Row]:
    made = subprocess.run([sys.executable, "-m", "bench.core", what], check=True, capture_output=True, text=True)
    for line in made.stdout.splitlines():
        name, value, unit, target = line.split("\t")
        yield Row(name=name, figure=float(value), unit=unit, target=float(target), is_ceiling=True)


def _queued(count: int = 10 * MILLION) -> None:
    before = _resident_bytes()
    queue = _filled(count)
    print(f"core: {count:,} queued\t{(_resident_bytes() - before) / 1e6:.0f}\tMB\t200")
    assert queue.state.live == count


def _leased(count: int = 30 * MILLION, per_second: int = 100_000) -> None:
    """Fill the queue in thousands, lease in tens over half a minute, then let time pass in steps."""
    before = _resident_bytes()
    lease_ms = 600_000
    queue, now_ms = Queue(1), START_MS
    for first in range(0, count, 1_000):
        _send(queue, Drafts(bodies=[b""] * 1_000), now_ms)
        for turn in range(first, first + 1_000, BATCH):
            leased = queue.lease(BATCH, now_ms=now_ms, token=turn, lease_ms=lease_ms)
            assert leased is not None
            queue.apply(leased)
        now_ms += 1_000 * 1_000 // BATCH // per_second
    gc.collect()
    print(f"core: {count:,} out in leases of {BATCH}\t{(_resident_bytes() - before) / 1e6:.0f}\tMB\t1000")
    _tick(queue, now_ms, START_MS + lease_ms)


def _tick(queue: Queue, now_ms: int, first_lapse_ms: int) -> None:
    slowest = 0.0
    for at_ms in range(now_ms, now_ms + 1_000):
        begun = perf_counter()
        queue.advance(at_ms)
        slowest = max(slowest, perf_counter() - begun)
    print(f"core: slowest tick with nothing due\t{slowest * 1_000:.3f}\tms\t1")
    live = queue.state.leased
    begun = perf_counter()
    for at_ms in range(first_lapse_ms, first_lapse_ms + 1_000):
        queue.advance(at_ms)
    lapsed = (live - queue.state.leased) // BATCH
    each = (perf_counter() - begun) / max(1, lapsed)
    print(f"core: lapse of one in {lapsed:,} leases\t{each * 1e6:.2f}\tµs\t50")


def _filled(count: int) -> Queue:
    queue, now_ms = Queue(1), START_MS
    drafts = Drafts(bodies=BODIES)
    for turn in range(count // BATCH):
        now_ms += turn % 10 == 0
        _send(queue, drafts, now_ms)
    gc.collect()
    return queue


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


WORKLOADS: tuple[Workload, ...] = (
    *(
        Cycles(name=f"core: {name}, batch {BATCH}", target=target, settings=settings, drafts=drafts)
        for name, target, settings, drafts in _workloads()
    ),
    Sizes(name="core: sizes", parts=("queued", "leased")),
)


def main() -> None:
    bench = Bench(Path(), 1.0, lambda: None)
    for workload in WORKLOADS:
        for row in workload.run(bench):
            sign = "<" if row.is_ceiling else "≥"
            verdict = "met" if row.is_met else "not met"
            print(f"{row.name:<60}{row.figure:>14,.3f} {row.unit:<14}{sign} {row.target:,.0f}  {verdict}")


if __name__ == "__main__":
    if sys.argv[1:] == ["queued"]:
        _queued()
    elif sys.argv[1:] == ["leased"]:
        _leased()
    else:
        main()
