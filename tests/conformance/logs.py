"""Every implementation of `log.interface.Log`, ready to be told a story."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock.log.disk_log import DiskLog
from penstock.log.interface import Log
from penstock.log.settings import LogSettings
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from tests.simulation.loop import simulate
from tests.simulation.world import Machine

Story = Callable[[Log], Awaitable[None]]

SMALL = LogSettings(segment_bytes_max=4_000, allocate_bytes=1_000, spare_bytes=0, index_every_bytes=200)


def on_simulated_disk(story: Story, _folder: Path) -> None:
    async def main() -> None:
        log = await DiskLog.open(Machine().start(), "log", SMALL)
        await story(log)
        await log.close()

    simulate(main)


def on_real_disk(story: Story, folder: Path) -> None:
    async def main() -> None:
        async with ThreadWorkers(2, halt) as workers:
            log = await DiskLog.open(system_runtime(folder, workers), "log", SMALL)
            await story(log)
            await log.close()

    asyncio.run(main())


IMPLEMENTATIONS = {
    "disk log, simulated disk": on_simulated_disk,
    "disk log, real disk": on_real_disk,
}
