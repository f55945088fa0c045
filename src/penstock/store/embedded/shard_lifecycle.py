"""A shard in use: opening it from its newest snapshot and its journal, the tasks that look after it, closing it."""

import asyncio
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.contract.limits import KIB, MIB
from penstock.log.disk_log import DiskLog
from penstock.log.interface import Log, LogBusy, LogClosed, LogFull
from penstock.log.inventory import open_listed
from penstock.log.settings import LogSettings
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import Runtime
from penstock.store.embedded import history_writer as histories
from penstock.store.embedded.compaction import Folders, JournalCompaction
from penstock.store.embedded.history_writer import History, retain
from penstock.store.embedded.shard import Shard
from penstock.store.embedded.shard_state import IN_MEMORY, RetentionLimits, ShardState
from penstock.store.embedded.snapshot_file import SnapshotDamaged, load, set_aside, snapshot_name, snapshot_offsets
from penstock.telemetry import STORE_SNAPSHOT_DAMAGED, STORE_UPKEEP_FAILED

# Smaller than a stream's: opening replays what came after the last snapshot, which is made of closed segments.
JOURNAL_SETTINGS = LogSettings(segment_bytes_max=32 * MIB, commit_in_loop_bytes_max=16 * KIB)
UPKEEP_MS = 1_000
# How often the history is looked at while there is something to write; it decides itself what is due.
HISTORY_MS = 200

__all__ = ["JOURNAL_SETTINGS", "UPKEEP_MS", "Folders", "ShardLifecycle"]


class ShardLifecycle:
    def __init__(
        self,
        runtime: Runtime,
        shard: Shard,
        journal: DiskLog,
        history_log: DiskLog,
        *,
        keep: RetentionLimits,
        upkeep: JournalCompaction,
    ) -> None:
        self._runtime = runtime
        self._keep = keep
        self._log = journal
        self.history_log = history_log
        self._upkeep = upkeep
        self._tasks: list[asyncio.Task[None]] = []
        self.shard = shard

    @classmethod
    async def open(
        cls, runtime: Runtime, folders: Folders, settings: LogSettings, *, keep: RetentionLimits
    ) -> "ShardLifecycle":
        later = [each.rpartition("/")[2] for each in (folders.snapshots, folders.history)]
        journal = await _open_log(runtime, folders.journal, settings, later)
        try:
            history_log = await _open_log(runtime, folders.history, _history_settings(settings))
        except BaseException:
            await journal.close()
            raise
        try:
            recalled = await load_snapshot(runtime, folders.snapshots, journal)
            shard = Shard(runtime, journal, recalled.memory, keep)
            shard.history = await History.open(runtime, history_log, journal=journal, about=shard.about)
            await shard.replay(recalled.offset)
            shard.history.let_go = shard.let_go
        except BaseException:
            await journal.close()
            await history_log.close()
            raise
        # Nothing outlives the process in memory, where an fsync does nothing.
        is_synced = settings.sync == "batch" or keep is IN_MEMORY
        upkeep = JournalCompaction(runtime, folders, journal, shard, keep, is_synced=is_synced)
        return cls(runtime, shard, journal, history_log, keep=keep, upkeep=upkeep)

    async def take_over(self, ahead_ms: int, *, upkeep_ms: int) -> None:
        """Begin to serve. The tasks begin last: until then a thread changes the queues."""
        assert self.shard.history is not None
        turns = Turns()
        self.shard.in_turns = turns.add
        await self.shard.take_over(ahead_ms)
        for care in (self._shorten(upkeep_ms), self._write_history(self.shard.history), turns.run()):
            # Not a TaskGroup's: they live from here to `close`, which awaits them.
            self._tasks.append(asyncio.create_task(care))  # noqa: TID251

    @property
    def known_ms(self) -> int:
        """The newest time that is known of the shard: of an event, or of its last stop in good order."""
        return max(self.shard.memory.newest_ms, self._log.closed_at_ms)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        try:
            if self.shard.history is not None:
                await self.shard.history.flush()
        finally:
            await self.history_log.close()
            self._log.closed_at_ms = self.shard.now_ms()
            await self._log.close()

    async def _shorten(self, every_ms: int) -> None:
        """Shorten the journal whenever another segment of it is closed, or the disk may be short of space."""
        while True:
            await asyncio.sleep(every_ms / 1_000)
            self._log.rolled.clear()
            if await self._cares(self._upkeep.run_once) and not self._upkeep.may_run_short:
                await self._log.rolled.wait()

    async def watch(self) -> None:
        """Stop the process if the files of the shard were taken away."""
        for log in (self._log, self.history_log):
            await log.watch()

    async def _write_history(self, history: History) -> None:
        while True:
            await history.has_rows.wait()
            await asyncio.sleep(HISTORY_MS / 1_000)
            await self._cares(lambda: history.run_once(self.shard.now_ms()))
            if not history.pending_rows:
                history.has_rows.clear()
            if self.history_log.rolled.is_set():
                self.history_log.rolled.clear()
                await self._cares(self._retain_history)

    async def _retain_history(self) -> None:
        keep, now_ms = self._keep, self.shard.now_ms()
        await retain(self.history_log, now_ms=now_ms, keep_ms=keep.history_ms, keep_bytes=keep.history_bytes)

    async def _cares(self, care: Callable[[], Awaitable[bool | None]]) -> bool:
        """Do something that may go wrong without harm, because it is tried again."""
        try:
            return bool(await care())
        except (LogBusy, LogFull, LogClosed):
            # There is no room now, or the shard is being closed.
            return False
        except Exception as error:
            self._runtime.log_event(STORE_UPKEEP_FAILED, error="".join(traceback.format_exception(error)))
            return False


async def _open_log(runtime: Runtime, path: str, settings: LogSettings, later: Sequence[str] = ()) -> DiskLog:
    folder, _, name = path.rpartition("/")
    return await open_listed(runtime, folder, name, settings, later=later)


def _history_settings(journal: LogSettings) -> LogSettings:
    """The history is as durable as the journal, and takes no larger steps than it on a small disk."""
    ours = histories.LOG_SETTINGS
    return replace(
        journal,
        segment_bytes_max=min(ours.segment_bytes_max, 2 * journal.segment_bytes_max),
        segment_age_ms_max=ours.segment_age_ms_max,
        spare_bytes=ours.spare_bytes,
        commit_in_loop_bytes_max=0,
    )


class JournalHasNoBeginning(Exception):
    """The journal's first events are gone, and no snapshot that could be read holds what they came to."""


class LoadedSnapshot(NamedTuple):
    memory: ShardState
    # The journal goes on from here.
    offset: int


async def load_snapshot(runtime: Runtime, snapshots: str, log: Log) -> LoadedSnapshot:
    """Read the newest snapshot that is whole and leads to the end of the journal.

    Raises `JournalHasNoBeginning`, and `SnapshotUnknown` for one of a newer version.
    """
    return await off_loop(
        runtime.workers, lambda: _load_newest(runtime, snapshots, log.start_offset, log.durable_offset)
    )


def _load_newest(runtime: Runtime, snapshots: str, start_offset: int, end_offset: int) -> LoadedSnapshot:
    recalled = None
    unusable: list[int] = []
    for offset in reversed(snapshot_offsets(runtime.disk, snapshots)):
        # One from before the start was left by a process that was killed before it could remove it.
        if offset < start_offset:
            break
        error = f"it is from beyond the end of this journal, which is at {end_offset}"
        if offset <= end_offset:
            try:
                recalled = LoadedSnapshot(load(runtime.disk, snapshots, offset), offset)
                break
            except SnapshotDamaged as damage:
                error = str(damage)
        runtime.log_event(STORE_SNAPSHOT_DAMAGED, file=f"{snapshots}/{snapshot_name(offset)}", error=error)
        unusable.append(offset)
    if recalled is None and start_offset:
        raise JournalHasNoBeginning(
            f"the journal begins at offset {start_offset}, and no whole snapshot in {snapshots} leads to it; "
            "restore a backup, or put back the snapshots that belong to this journal"
        )
    set_aside(runtime.disk, snapshots, unusable)
    return recalled or LoadedSnapshot(ShardState(), start_offset)


class Turns:
    """Pieces of work, each of which says after every turn for how many seconds it has nothing to do."""

    def __init__(self) -> None:
        self._waiting: deque[Iterator[float]] = deque()
        self._has_some = asyncio.Event()

    def add(self, work: Iterator[float]) -> None:
        self._waiting.append(work)
        self._has_some.set()

    async def run(self) -> None:
        """Give each piece of work one turn after the other, for as long as there is any."""
        while True:
            await self._has_some.wait()
            rest_s = 0.0
            for _ in range(len(self._waiting)):
                work = self._waiting.popleft()
                turn_s = next(work, None)
                if turn_s is not None:
                    rest_s = max(rest_s, turn_s)
                    self._waiting.append(work)
                await asyncio.sleep(0)
            if not self._waiting:
                self._has_some.clear()
            await asyncio.sleep(rest_s)
