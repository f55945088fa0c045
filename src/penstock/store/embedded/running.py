"""A shard in use: its journal, what it remembers, and the task that looks after both."""

import asyncio
import traceback

from penstock.core.limits import MIB
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogBusy, LogClosed, LogFull
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime
from penstock.store.embedded.recall import recall
from penstock.store.embedded.shard import Shard
from penstock.store.embedded.upkeep import Folders, Upkeep
from penstock.telemetry import STORE_UPKEEP_FAILED

# Smaller than a stream's: opening replays what came after the last snapshot, which is made of closed segments.
JOURNAL_SETTINGS = LogSettings(segment_bytes_max=32 * MIB)
UPKEEP_MS = 1_000

__all__ = ["JOURNAL_SETTINGS", "UPKEEP_MS", "Folders", "RunningShard"]


class RunningShard:
    def __init__(self, runtime: Runtime, log: DiskLog, shard: Shard, upkeep: Upkeep) -> None:
        self._runtime = runtime
        self._log = log
        self._upkeep = upkeep
        self._task: asyncio.Task[None] | None = None
        self.shard = shard

    @classmethod
    async def open(cls, runtime: Runtime, folders: Folders, settings: LogSettings, *, upkeep_ms: int) -> "RunningShard":
        log = await DiskLog.open(runtime, folders.journal, settings)
        try:
            recalled = await recall(runtime, folders.snapshots, log)
            shard = Shard(runtime, log, recalled.memory)
            await shard.replay(recalled.offset)
        except BaseException:
            await log.close()
            raise
        running = cls(runtime, log, shard, Upkeep(runtime, folders, log, shard))
        # Not a TaskGroup's: it lives from here to `close`, which awaits it.
        running._task = asyncio.create_task(running._look_after(upkeep_ms))  # noqa: TID251
        return running

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._log.close()

    async def _look_after(self, every_ms: int) -> None:
        while True:
            await asyncio.sleep(every_ms / 1_000)
            self._log.rolled.clear()
            try:
                is_done = await self._upkeep.run_once()
            except (LogBusy, LogFull):
                # There is no room to copy anything into now.
                continue
            except LogClosed:
                return
            except Exception as error:
                self._runtime.note(STORE_UPKEEP_FAILED, error="".join(traceback.format_exception(error)))
                continue
            if is_done:
                await self._log.rolled.wait()
