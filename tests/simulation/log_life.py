"""The random life of one log on a machine that crashes, checked against plain memory.

A life is a chain of processes. Each opens the log, compares it with what the
world outside remembers, appends, reads, rolls and drops,
and then closes in good order, is killed, loses power in the middle of some
operation of the disk, or stops because a sync failed.

What must hold on every opening
-------------------------------
1. Every record that was acknowledged is there, at its offset, unless it was
   dropped on purpose.
2. Every record that is there was appended at that offset.
3. A log that was closed in good order ends where it ended.
4. A log opens: nothing here damages it, and a torn tail is not damage.
5. It has the files of its segments, and no others.

One life in four has the policy `os`, which may lose on a power cut, or when a sync
fails, what was acknowledged since the last sync. It must still open, and hold a beginning of what
was appended.
"""

import asyncio
import random
from dataclasses import dataclass, field, replace

from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.group_commit import QUIET_MS
from penstock.log.interface import LogBusy
from penstock.log.recovery import LogCorrupted
from penstock.log.segment import base_offsets
from penstock.log.settings import LogSettings, SyncPolicy
from penstock.runtime.interface import Runtime
from tests.simulation.loop import simulate
from tests.simulation.world import Died, Machine
from tests.waiting import elapse

FOLDER = "life"
PROCESSES = 6


def tiny(sync: SyncPolicy = "batch") -> LogSettings:
    """Settings under which a few kilobytes see many commits and rolls."""
    return LogSettings(
        sync=sync,
        sync_interval_ms=5,
        floor_interval_ms=2,
        segment_bytes_max=3_000,
        segment_age_ms_max=3_600_000,
        commit_bytes_max=1_500,
        allocate_bytes=4_096,
        spare_bytes=1_024,
        index_every_bytes=300,
    )


@dataclass
class Memory:
    """What the world outside knows of the log."""

    appended: dict[int, bytes] = field(default_factory=dict)
    acknowledged_end: int = 0
    # The lowest offset the log may still have after drops: it may keep more.
    dropped_before: int = 0
    closed_at: int | None = None


class Life:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"life/{seed}")
        self.machine = Machine(seed)
        self.memory = Memory()
        self.settings = tiny(self.dice.choice(["batch", "batch", "batch", "os"]))
        # Some logs write small commits in the loop, some only the smallest of them.
        self.settings = replace(self.settings, commit_in_loop_bytes_max=self.dice.choice([0, 300, 1_500]))

    async def live(self) -> None:
        for _ in range(PROCESSES):
            if self.dice.random() < 0.8:
                # Often so early that a process dies while it opens what the last one left half done.
                steps = self.dice.choice([12, 90])
                self.machine.disk.crash_after = self.machine.disk.operations + self.dice.randint(0, steps)
            elif self.dice.random() < 0.5:
                self.machine.disk.fail_sync_after = self.dice.randint(0, 20)
            await self.live_once()
        self.machine.disk.crash_after = self.machine.disk.fail_sync_after = None
        await self.live_once(end="close")

    async def live_once(self, end: str | None = None) -> None:
        end = end or self.dice.choice(["close", "kill", "power cut"])
        a_sync_may_fail = self.machine.disk.fail_sync_after is not None
        runtime = self.machine.start()
        try:
            await self.machine.run(self.process(runtime, end))
        except LogCorrupted as error:
            raise AssertionError("a log that nothing has damaged was refused") from error
        except Died:
            # What an operation left half done may reach the platter or not.
            end = self.dice.choice(["kill", "power cut"])
        if end == "kill":
            self.machine.kill()
        else:
            # After a clean stop, too: everything it promised must already be durable.
            self.machine.power_cut()
        is_relaxed = self.settings.sync == "os" and self.memory.closed_at is None
        if is_relaxed and (end == "power cut" or a_sync_may_fail):
            self.memory.acknowledged_end = 0

    async def process(self, runtime: Runtime, end: str) -> None:
        log = await DiskLog.open(runtime, FOLDER, self.settings)
        # A crash in the middle of a roll leaves a file that no segment has: opening the log removes it.
        files = base_offsets(runtime.disk.names(FOLDER))
        assert files == [segment.base_offset for segment in log.segments], "a file is left over"
        await check(log, self.memory)
        for _ in range(self.dice.randint(1, 5)):
            step = self.dice.choice([self.append_many, self.append_many, self.rest, self.drop, self.roll])
            await step(log)
            await check(log, self.memory)
        if end == "close":
            await log.close()
            self.memory.closed_at = log.end_offset

    async def append_many(self, log: DiskLog) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self.dice.randint(1, 4)):
                tasks.create_task(self.append_some(log, self.dice.randint(1, 5)))

    async def append_some(self, log: DiskLog, count: int) -> None:
        for _ in range(count):
            bodies = [
                self.dice.randbytes(self.dice.choice([0, 10, 100, 700, 6_000])) for _ in range(self.dice.randint(1, 3))
            ]
            batch = record.encode([(None, body) for body in bodies], at_ms=0)
            try:
                space = log.reserve(len(batch))
            except LogBusy:
                await log.wait_durable(log.end_offset)
                continue
            with space:
                offset = log.append(batch, space)
            self.memory.appended.update((offset + i, body) for i, body in enumerate(bodies))
            self.memory.closed_at = None
            await log.wait_durable(offset + len(bodies))
            self.memory.acknowledged_end = max(self.memory.acknowledged_end, offset + len(bodies))

    async def rest(self, _log: DiskLog) -> None:
        # Until the log has confirmed its last commit by a lone marker.
        await elapse(3 * QUIET_MS / 1000)

    async def drop(self, log: DiskLog) -> None:
        offset = self.dice.randint(log.start_offset, log.durable_offset)
        self.memory.dropped_before = max(self.memory.dropped_before, offset)
        await log.drop_before(offset)

    async def roll(self, log: DiskLog) -> None:
        # With room left in the segment: what a crash leaves of the new one is not where the next roll begins.
        await log.roll()


def forget_beyond(memory: Memory, end_offset: int) -> None:
    for offset in [offset for offset in memory.appended if offset >= end_offset]:
        del memory.appended[offset]


async def check(log: DiskLog, memory: Memory) -> None:
    if memory.closed_at is not None:
        assert log.end_offset == memory.closed_at
        memory.closed_at = None
    assert log.end_offset >= memory.acknowledged_end, "an acknowledged record is gone"
    assert log.start_offset <= memory.dropped_before, "more was dropped than was asked for"
    forget_beyond(memory, log.end_offset)
    assert await contents(log) == {
        offset: body for offset, body in memory.appended.items() if log.start_offset <= offset < log.durable_offset
    }
    # Whatever a recovery kept is durable from now on, and may be told to anyone.
    memory.acknowledged_end = max(memory.acknowledged_end, log.durable_offset)


async def contents(log: DiskLog) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = log.start_offset
    while offset < log.durable_offset:
        for batch in await log.read(offset, bytes_max=2_000):
            offset = checked(batch).base_offset
            for entry in record.records(batch):
                assert entry.value is not None
                found[offset] = bytes(entry.value)
                offset += 1
    return found


def checked(batch: memoryview) -> record.Header:
    try:
        return record.check(batch)
    except record.BadBatch as error:
        raise AssertionError("a reader was given bad bytes") from error


def run(seed: int) -> None:
    """Live one life; raises what went wrong."""

    async def main() -> None:
        await Life(seed).live()

    simulate(main, seed=seed)
