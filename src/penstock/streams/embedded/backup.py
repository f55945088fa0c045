"""Copies all topics, and how far groups have come, while they are in use.

    what topics there are ──▶ offsets ──▶ catalog ──▶ partitions ──▶ what topics there are now
                                                                     │
                                          the copy is told of it ◀───┘

Laws of this file
-----------------
1. Offsets are copied before partitions: what a group has read is in the copy.
2. The catalog is copied before partitions: what was trimmed by its word ends before
   the copied partition does. Producer ids are the other way round: records in the copy
   may be of producers that came after its catalog, and their ids must not be given out
   again. So the copied catalog learns at the end which ids may be in use.
3. A topic that is deleted meanwhile is not in the copy; one that is made meanwhile may
   be. Offsets stay only if their topic was there, and the same one, all the time: of a
   topic that was made again under its old name they would be ahead of the records.

What is known of producers is read before the log it belongs to, so that it is never
ahead of it (`producer_state.py`).
"""

from collections.abc import Callable
from functools import partial

from penstock.log.backup import Copied, Folder, LogMovesTooFast, TargetNotEmpty, backup
from penstock.log.survey import NothingToRead
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import Disk, Runtime
from penstock.streams.embedded.offset_store import Offsets
from penstock.streams.embedded.topic_catalog import Catalog, Facts
from penstock.streams.embedded.topic_store import remove_folder
from penstock.streams.producer_state import NAME as PRODUCERS

CATALOG = "catalog"
GROUPS = "groups"
PARTITIONS = "partitions"
# The catalog once more, to look into; it is gone when the copy is done.
LOOK = "catalog.look"

Progress = Callable[[str, int, int], None]


def is_streams(disk: Disk, folder: str) -> bool:
    """Say whether the folder is one of topics: `streams` in that of a server."""
    return disk.exists(f"{folder}/{CATALOG}/manifest") and disk.exists(f"{folder}/{PARTITIONS}")


def logs_of(disk: Disk, folder: str) -> list[str]:
    """Return every log in a folder of topics, relative to it. What a crash has half made or half deleted is none."""
    partitions = [f"{PARTITIONS}/{name}" for name in disk.names(f"{folder}/{PARTITIONS}")]
    return [log for log in (CATALOG, GROUPS, *partitions) if disk.exists(f"{folder}/{log}/manifest")]


async def backup_streams(
    source: Folder, runtime: Runtime, target: str, progress: Progress = lambda _what, _done, _total: None
) -> Copied:
    """Copy topics and groups into an empty folder of the runtime's disk; durable on return.

    Raises what `log.backup` does, and what opening a catalog and offsets does.
    """
    if runtime.disk.names(target):
        raise TargetNotEmpty(f"{target} is not empty; a backup goes into a folder of its own")
    return await _Copying(source, runtime, target, progress).run()


class _Copying:
    def __init__(self, source: Folder, runtime: Runtime, target: str, progress: Progress) -> None:
        self._source = source
        self._runtime = runtime
        self._target = target
        self._progress = progress
        self._copied: list[Copied] = []

    async def run(self) -> Copied:
        self._runtime.disk.make_folder(f"{self._target}/{PARTITIONS}")
        first = await self._look()
        if self._source.disk.exists(f"{self._source.path}/{GROUPS}/manifest"):
            await self._copy(GROUPS)
        await self._copy(CATALOG)
        facts = await self._facts(CATALOG)
        failed = await self._copy_partitions(facts)
        last = await self._look()
        for number, error in failed.items():
            if number in last.topics:
                raise error
        kept = await self._amend_catalog(last)
        await self._amend_groups(_numbers(first), _numbers(kept))
        return Copied(sum(each.segments for each in self._copied), sum(each.size_bytes for each in self._copied))

    async def _copy(self, name: str) -> None:
        source = Folder(self._source.disk, f"{self._source.path}/{name}")
        target = Folder(self._runtime.disk, f"{self._target}/{name}")

        def work() -> Copied:
            return backup(source, target, lambda done, total: self._progress(source.path, done, total))

        self._copied.append(await off_loop(self._runtime.workers, work))

    async def _look(self) -> Facts:
        """Return what the catalog says now, by way of a copy: only its owner may open the original."""
        source = Folder(self._source.disk, f"{self._source.path}/{CATALOG}")
        look = Folder(self._runtime.disk, f"{self._target}/{LOOK}")
        await off_loop(self._runtime.workers, lambda: backup(source, look))
        try:
            return await self._facts(LOOK)
        finally:
            await off_loop(self._runtime.workers, lambda: remove_folder(look.disk, look.path))

    async def _facts(self, name: str) -> Facts:
        catalog = await Catalog.open(self._runtime, f"{self._target}/{name}")
        await catalog.close()
        return catalog.facts

    async def _copy_partitions(self, facts: Facts) -> dict[int, Exception]:
        """Copy the partitions of all topics; return those that could not be, by number: they may have been deleted."""
        failed: dict[int, Exception] = {}
        for number, topic in facts.topics.items():
            try:
                for index in range(topic.settings.partitions):
                    await self._copy_partition(f"{PARTITIONS}/{number}-{index}")
            except (NothingToRead, LogMovesTooFast, FileNotFoundError) as error:
                failed[number] = error
        return failed

    async def _copy_partition(self, name: str) -> None:
        workers, disk = self._runtime.workers, self._runtime.disk
        known = await off_loop(workers, lambda: _content(self._source.disk, f"{self._source.path}/{name}/{PRODUCERS}"))
        await self._copy(name)
        if known is not None:
            await off_loop(workers, lambda: _write(disk, f"{self._target}/{name}", PRODUCERS, known))

    async def _amend_catalog(self, last: Facts) -> Facts:
        """Tell the copied catalog of the producers and the ends of topics that came while partitions were copied."""
        catalog = await Catalog.open(self._runtime, f"{self._target}/{CATALOG}")
        try:
            if last.next_producer > catalog.facts.next_producer:
                await catalog.write("producers", upto=last.next_producer)
            for number, topic in list(catalog.facts.topics.items()):
                if number not in last.topics:
                    await catalog.write("deleted", number=number)
                    for index in range(topic.settings.partitions):
                        folder = f"{self._target}/{PARTITIONS}/{number}-{index}"
                        await off_loop(self._runtime.workers, partial(remove_folder, self._runtime.disk, folder))
            return catalog.facts
        finally:
            await catalog.close()

    async def _amend_groups(self, first: dict[str, int], kept: dict[str, int]) -> None:
        folder = f"{self._target}/{GROUPS}"
        if not self._runtime.disk.exists(f"{folder}/manifest"):
            return
        same = {name for name, number in kept.items() if first.get(name) == number}
        offsets = await Offsets.open(self._runtime, folder)
        try:
            for group in offsets.groups():
                offsets.forget(group, [place for place in offsets.of(group) if place[0] not in same])
            await offsets.durable()
        finally:
            await offsets.close()


def _numbers(facts: Facts) -> dict[str, int]:
    return {topic.name: number for number, topic in facts.topics.items()}


def _content(disk: Disk, path: str) -> bytes | None:
    try:
        file = disk.open(path, must_exist=True)
    except FileNotFoundError:
        return None
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def _write(disk: Disk, folder: str, name: str, data: bytes) -> None:
    file = disk.open(f"{folder}/{name}")
    try:
        file.write(data, 0)
        file.sync()
    finally:
        file.close()
    disk.sync_folder(folder)
