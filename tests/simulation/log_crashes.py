"""Two crashes in a row: one at a chosen step of a log's short life, one at every step of the recovery from it.

A process that is killed leaves things that only the kernel's memory knows. If the
next one acts on them and then loses power, what it acted on may be gone. Random
lives meet this rarely; here each pair of steps has its turn.
"""

import asyncio
import copy

from penstock.log.disk_log import DiskLog
from penstock.log.recovery import LogCorrupted
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime
from tests.simulation.disk import SIZE
from tests.simulation.log_life import FOLDER, Life, check
from tests.simulation.loop import simulate
from tests.simulation.world import Died, Machine

SETTINGS = LogSettings(
    segment_bytes_max=400, allocate_bytes=0, spare_bytes=0, index_every_bytes=200, commit_bytes_max=600
)


STEPS_MAX = 60


def nothing(_path: str, _page: int) -> bool:
    """Everything that was not synced is lost: the hardest cut there is for what was acted upon too early."""
    return False


def only_sizes(_path: str, page: int) -> bool:
    """What was not synced is zeros: the hardest cut for a file whose end is not looked for any more."""
    return page == SIZE


class ShortLife(Life):
    """Everything a log does, once, in a few dozen operations of its disk."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.settings = SETTINGS

    async def process(self, runtime: Runtime, end: str) -> None:
        log = await DiskLog.open(runtime, FOLDER, self.settings)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(self.append_some(log, 1))
        await self.append_some(log, 4)
        await self.rest(log)
        await self.append_some(log, 4)
        await self.roll(log)
        await self.append_some(log, 2)
        await self.drop(log)
        await self.append_some(log, 1)
        await self.rest(log)
        if end == "close":
            await log.close()
            self.memory.closed_at = log.end_offset


class SecondLife(Life):
    """What comes after: open what is left, append to it, and die on the way."""

    def __init__(self, seed: int, first: Life) -> None:
        super().__init__(seed)
        self.machine = Machine(seed, disk=first.machine.disk.copy())
        self.memory = copy.deepcopy(first.memory)
        self.settings = SETTINGS

    async def process(self, runtime: Runtime, end: str) -> None:
        try:
            log = await DiskLog.open(runtime, FOLDER, SETTINGS)
        except LogCorrupted as error:
            raise AssertionError("a log that nothing has damaged was refused") from error
        await check(log, self.memory)
        if end != "look":
            await self.rest(log)
            await self.append_some(log, 1)


def run(seed: int) -> None:
    """Crash at the step that ``seed`` says; raises what went wrong after any second crash."""
    first = ShortLife()
    first.machine.disk.crash_after = seed
    simulate(lambda: died(first, "close"))
    first.machine.kill()
    for step in range(STEPS_MAX):
        second = SecondLife(seed, first)
        second.machine.disk.crash_after = second.machine.disk.operations + step
        is_over = not simulate(lambda life=second: died(life, "append"))  # type: ignore[misc]
        for survives in (nothing, only_sizes):
            third = SecondLife(seed, second)
            third.machine.power_cut(survives)
            assert not simulate(lambda life=third: died(life, "look"))  # type: ignore[misc]
        if is_over:
            return
    raise AssertionError("recovery takes more steps than were tried")


async def died(life: Life, end: str) -> bool:
    """Live; return whether it ended by a crash."""
    try:
        await life.machine.run(life.process(life.machine.start(), end))
    except Died:
        return True
    return False


def steps() -> int:
    """Return how many operations of the disk the short life takes: the seeds that are worth running."""
    life = ShortLife()
    simulate(lambda: died(life, "close"))
    return life.machine.disk.operations
