"""All topics of a folder: made, changed, deleted, and looked after.

    <folder>/                       locked: one process for all of it
    <folder>/catalog/               which topics there are (`topic_catalog.py`)
    <folder>/partitions/17-0/       partition 0 of topic number 17: a log, and `producers`

Laws of this file
-----------------
1. Changes of topics are made one after the other, and go on to their end even if the
   caller has gone: nothing is ever half made.
2. A topic is found only when the catalog says durably that it is there, and not any
   more before the catalog says that it is gone.
"""

import asyncio
import errno
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from penstock.contract.limits import MIB, PARTITIONS_MAX, TOPIC_FILES_MAX
from penstock.contract.topic_settings import BadTopicSettings, TopicSettings
from penstock.log.disk_log import fail
from penstock.log.interface import LogBusy, LogFull, OffsetOutOfRange
from penstock.log.recovery import LogCorrupted
from penstock.log.settings import LogSettings, leave_free_bytes
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import NO_SPACE, Clock, Disk, FolderLock, Runtime, Timings
from penstock.runtime.open_files import OpenFiles
from penstock.streams.compaction import with_cleaning
from penstock.streams.embedded import topic_catalog as catalogs
from penstock.streams.embedded.maintenance import Maintenance
from penstock.streams.embedded.partition import LogPartition, LogTopic
from penstock.streams.embedded.topic_catalog import Catalog, PartitionFacts, TopicFacts
from penstock.streams.interface import (
    BadTopicName,
    PartitionsCannotShrink,
    TooManyPartitions,
    TopicExists,
    TopicNotFound,
    TopicOf,
    alike,
    check_topic_name,
)
from penstock.telemetry import STREAMS_UPKEEP_FAILED

T = TypeVar("T")
U = TypeVar("U")

# A partition keeps nothing in reserve: nothing that frees space is written to it.
PARTITION_LOG = LogSettings(
    allocate_bytes=16 * MIB, allocate_grows=True, spare_bytes=0, open_segments_max=4, rolls_before_full=True
)

_OPENING_MAX = 16
_CREATED_AT_ONCE = 25
_PRODUCER_IDS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsSettings:
    """How the logs behave, and how often they are looked after."""

    partition_log: LogSettings = PARTITION_LOG
    catalog_log: LogSettings = catalogs.LOG_SETTINGS
    # Of all logs together. What more there is to open is closed and opened by turns.
    open_files_max: int = TOPIC_FILES_MAX
    # How often closed segments are taken note of, and how often everything is looked at.
    upkeep_ms: int = 1_000
    retention_check_ms: int = 30_000


class Streams:
    def __init__(self, runtime: Runtime, folder: str, settings: StreamsSettings, lock: FolderLock) -> None:
        self._runtime = runtime
        self._folder = folder
        self._settings = settings
        self._lock = lock
        self._catalog: Catalog
        self._maintenance: Maintenance
        self.topics: dict[str, LogTopic] = {}
        self._by_id: dict[bytes, LogTopic] = {}
        # The names of all topics as metrics would have them, and how many partitions there are.
        self._alike: dict[str, str] = {}
        self.partition_count = 0
        self._turn = asyncio.Lock()
        # Changes under way. `close` awaits them.
        self._changes: set[asyncio.Task[Any]] = set()
        self._next_producer = self._producers_upto = 0

    @classmethod
    async def open(
        cls, runtime: Runtime, folder: str, settings: StreamsSettings | None = None, clock: Clock | None = None
    ) -> "Streams":
        """Open all topics in a folder, or begin with none. Raises what `DiskLog.open` does.

        ``runtime`` may have workers of its own, so that many partitions do not hold up the queues.
        Records grow old by ``clock``, if it is given.
        """
        settings = settings or StreamsSettings()

        def take() -> tuple[FolderLock, int]:
            runtime.disk.make_folder(f"{folder}/partitions")
            return runtime.disk.lock(folder), runtime.disk.space(folder).total_bytes

        lock, disk_bytes = await off_loop(runtime.workers, take)
        runtime = replace(runtime, disk=OpenFiles(runtime.disk, settings.open_files_max, partial(fail, runtime)))
        partition_log = replace(settings.partition_log, leave_free_bytes=leave_free_bytes(disk_bytes))
        streams = cls(runtime, folder, replace(settings, partition_log=partition_log), lock)
        try:
            await streams._open(clock or runtime.clock)
        except BaseException:
            streams._lock.release()
            raise
        return streams

    async def _open(self, clock: Clock) -> None:
        self._catalog = await Catalog.open(self._runtime, f"{self._folder}/catalog", self._settings.catalog_log)
        try:
            self._next_producer = self._producers_upto = self._catalog.facts.next_producer
            await off_loop(self._runtime.workers, self._remove_strangers)
            await self._open_topics()
        except BaseException:
            await self._close_partitions()
            await self._catalog.close()
            raise
        every_ms, all_every_ms = self._settings.upkeep_ms, self._settings.retention_check_ms
        # What is too old is so by this clock, which may be behind that of the system (`timekeeping.py` of the store).
        runtime = replace(self._runtime, clock=clock)
        self._maintenance = Maintenance(runtime, self, every_ms=every_ms, all_every_ms=all_every_ms)
        self._maintenance.start()

    @property
    def timings(self) -> Timings:
        return self._runtime.timings

    async def close(self) -> None:
        await self._maintenance.stop()
        while self._changes:
            await asyncio.wait(self._changes)
        await self._close_partitions()
        await self._catalog.close()
        self._lock.release()

    async def refresh(self) -> None:
        """Nothing else changes what is in this folder."""

    async def look(self, places: Iterable[tuple[str, int]]) -> None:
        """What is known of a partition is how it is."""

    def find(self, name: str) -> LogTopic:
        topic = self.topics.get(name)
        if topic is None:
            raise TopicNotFound(f"there is no topic {name!r}")
        return topic

    def find_by_id(self, topic_id: bytes) -> LogTopic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise TopicNotFound(f"there is no topic of id {topic_id.hex()}")
        return topic

    # Changes.

    def check_create(self, name: str, settings: TopicSettings) -> None:
        """Raise what `create` would raise, and do nothing."""
        check_topic_name(name)
        if name in self.topics:
            raise TopicExists(f"there is a topic {name!r}")
        # Where names become those of metrics, dots and underscores are one.
        if alike(name) in self._alike:
            raise BadTopicName(f"there is a topic that differs from {name!r} only in dots and underscores")
        self._check_count(settings.partitions)

    async def create(self, name: str, settings: TopicSettings | None = None) -> LogTopic:
        """Make a topic, durably. A call that is cancelled may still have made it, wholly."""
        (made,) = await self.create_all([(name, settings or TopicSettings())])
        if isinstance(made, Exception):
            raise made
        return made

    async def create_all(self, wanted: Sequence[tuple[str, TopicSettings]]) -> list[LogTopic | Exception]:
        """Make topics, with one fsync of the catalog for many; return each topic, or what `create` would raise."""
        made: list[LogTopic | Exception] = []
        for first in range(0, len(wanted), _CREATED_AT_ONCE):
            some = wanted[first : first + _CREATED_AT_ONCE]
            made += await self._in_turn(partial(self._create_some, some))
        return made

    async def _create_some(self, wanted: Sequence[tuple[str, TopicSettings]]) -> list[LogTopic | Exception]:
        numbered = self._numbered(wanted)
        topics = [topic for topic in numbered if isinstance(topic, TopicOf)]
        try:
            refused = await self._prepare(topics)
            made = [topic for topic in topics if topic.number not in refused]
            if made:
                await self._catalog.write_all([("created", _fact(topic)) for topic in made])
        except Exception as error:
            for topic in topics:
                await self._undo(topic)
            if not isinstance(error, (LogFull, LogBusy)):
                raise
            return [error if isinstance(each, TopicOf) else each for each in numbered]
        for topic in made:
            self._publish(topic)
        return [refused.get(each.number, each) if isinstance(each, TopicOf) else each for each in numbered]

    def _numbered(self, wanted: Sequence[tuple[str, TopicSettings]]) -> list[LogTopic | Exception]:
        """Return the topics that may be made, without their partitions yet."""
        numbered: list[LogTopic | Exception] = []
        taken: set[str] = set()
        facts = self._catalog.facts
        count = 0
        for name, settings in wanted:
            try:
                self.check_create(name, settings)
                self._check_count(count + settings.partitions)
            except (ValueError, TopicExists, TooManyPartitions) as error:
                numbered.append(error)
                continue
            if alike(name) in taken:
                numbered.append(TopicExists(f"the topic {name!r} is there twice"))
                continue
            taken.add(alike(name))
            count += settings.partitions
            # Spent in any case: what a failed try leaves on the disk must not be taken for another topic's.
            number, facts.next_number = facts.next_number, facts.next_number + 1
            numbered.append(LogTopic(name, _new_id(self._runtime), number, settings))
        return numbered

    async def _prepare(self, topics: Sequence[LogTopic]) -> dict[int, Exception]:
        """Make the partitions of topics on the disk; return why those of some were not, by their numbers."""
        failed: dict[int, OSError] = {}
        made: dict[int, dict[int, LogPartition]] = {topic.number: {} for topic in topics}

        async def make(place: tuple[LogTopic, int]) -> None:
            topic, index = place
            path, log_settings = self._path(topic.number, index), self._settings.partition_log
            try:
                made[topic.number][index] = await LogPartition.open(self._runtime, path, topic.settings, log_settings)
            except OSError as error:
                failed[topic.number] = error

        try:
            await _all(make, [(topic, index) for topic in topics for index in range(topic.settings.partitions)])
        finally:
            for topic in topics:
                topic.partitions = [each for _, each in sorted(made[topic.number].items())]
        for topic in topics:
            if topic.number in failed:
                await self._undo(topic)
        for error in failed.values():
            if _refusal(error) is error:
                raise error
        return {number: _refusal(error) for number, error in failed.items()}

    async def _undo(self, topic: LogTopic) -> None:
        """Remove what was made of a topic that there will not be."""
        await self._discard(topic.partitions)
        topic.partitions = []
        for index in range(topic.settings.partitions):
            await self._remove(self._path(topic.number, index))

    async def change(self, name: str, settings: TopicSettings) -> LogTopic:
        """Give a topic other settings; the number of its partitions must be the same."""

        async def change() -> LogTopic:
            topic = self.find(name)
            if settings.partitions != topic.settings.partitions:
                raise BadTopicSettings("partitions", "is changed by adding some")
            if settings != topic.settings:
                await self._settle([], "changed", number=topic.number, settings=settings)
                topic.settings = settings
                for partition in topic.partitions:
                    partition.change(settings)
            return topic

        return await self._in_turn(change)

    async def grow(self, name: str, partitions: int) -> LogTopic:
        """Give a topic more partitions, so that it has so many."""

        async def change() -> LogTopic:
            topic = self.find(name)
            before = topic.settings.partitions
            if partitions <= before:
                raise PartitionsCannotShrink(f"topic {name!r} has {before} partitions; {partitions} are not more")
            settings = replace(topic.settings, partitions=partitions)
            self._check_count(partitions - before)
            made = await self._make_new(topic.number, settings, range(before, partitions))
            await self._settle(made, "changed", number=topic.number, settings=settings)
            topic.settings = settings
            topic.partitions += made
            self.partition_count += len(made)
            return topic

        return await self._in_turn(change)

    async def delete(self, name: str) -> None:
        """Delete a topic, durably; its records go from the disk a little later."""

        async def change() -> None:
            topic = self.find(name)
            await self._catalog.write("deleted", number=topic.number)
            del self.topics[name]
            del self._by_id[topic.id]
            del self._alike[alike(name)]
            self.partition_count -= len(topic.partitions)
            for partition in topic.partitions:
                await self._maintenance.let_go(partition)
            await self._discard(topic.partitions)

        await self._in_turn(change)

    async def trim(self, name: str, index: int, before_offset: int) -> int:
        """Remove everything before an offset, durably, and return where the partition starts now.

        -1 means the high watermark. Raises `OffsetOutOfRange` beyond it.
        """

        async def change() -> int:
            topic = self.find(name)
            partition = topic.partition(index)
            upto = partition.high_watermark if before_offset == -1 else before_offset
            if not 0 <= upto <= partition.high_watermark:
                raise OffsetOutOfRange(f"there is no offset {upto} to trim to; the end is {partition.high_watermark}")
            if upto > partition.start_offset:
                await self._catalog.write("trimmed", number=topic.number, partition=index, offset=upto)
                partition.trimmed_offset = upto
                self._maintenance.wake(partition)
            return partition.start_offset

        return await self._in_turn(change)

    async def cleaned(self, topic: LogTopic, index: int, offset: int, at_ms: int) -> None:
        """Take note that a cleaning of a compacted partition has looked at everything below an offset."""

        async def change() -> None:
            if self.topics.get(topic.name) is topic:
                known = self.partition_facts(topic, index).cleanings
                cleanings = with_cleaning(known, offset, at_ms, topic.settings.tombstone_ms)
                await self._catalog.write("cleaned", number=topic.number, partition=index, cleanings=cleanings)

        await self._in_turn(change)

    async def new_producer(self) -> int:
        """Return a producer id that was never given out."""

        async def change() -> None:
            if self._next_producer == self._producers_upto:
                upto = self._next_producer + _PRODUCER_IDS
                await self._catalog.write("producers", upto=upto)
                self._producers_upto = upto

        while self._next_producer == self._producers_upto:
            await self._in_turn(change)
        self._next_producer += 1
        return self._next_producer - 1

    async def new_producers(self, count: int) -> int:
        """Return the first of so many producer ids in a row. What is left of the ids in store goes unused."""

        async def change() -> int:
            first = self._producers_upto
            await self._catalog.write("producers", upto=first + count)
            self._next_producer = self._producers_upto = first + count
            return first

        return await self._in_turn(change)

    async def watch(self) -> None:
        await self._catalog.watch()

    def partition_facts(self, topic: LogTopic, index: int) -> PartitionFacts:
        facts = self._catalog.facts.topics.get(topic.number)
        return PartitionFacts() if facts is None else facts.partition(index)

    async def _in_turn(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            async with self._turn:
                return await change()

        # Not a TaskGroup's: it outlives its caller, and `close` awaits it.
        task = asyncio.create_task(run())  # noqa: TID251
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    # Partitions.

    def _check_count(self, more: int) -> None:
        if self.partition_count + more > PARTITIONS_MAX:
            raise TooManyPartitions(f"there are {self.partition_count} partitions; PARTITIONS_MAX is {PARTITIONS_MAX}")

    def _path(self, number: int, index: int) -> str:
        return f"{self._folder}/partitions/{number}-{index}"

    async def _make_new(self, number: int, settings: TopicSettings, indexes: range) -> list[LogPartition]:
        """Make partitions, all of them or none."""
        try:
            return await self._make(number, settings, indexes)
        except BaseException as error:
            for index in indexes:
                await self._remove(self._path(number, index))
            if isinstance(error, OSError):
                raise _refusal(error) from error
            raise

    async def _make(self, number: int, settings: TopicSettings, indexes: range) -> list[LogPartition]:
        """Open or make partitions. If one cannot be, none is left open."""
        made: list[LogPartition] = []

        async def make(index: int) -> LogPartition:
            path, log_settings = self._path(number, index), self._settings.partition_log
            made.append(await LogPartition.open(self._runtime, path, settings, log_settings))
            return made[-1]

        try:
            return await _all(make, indexes)
        except BaseException:
            for partition in made:
                await partition.close()
            raise

    async def _settle(self, made: list[LogPartition], kind: str, *, settings: TopicSettings, **fact: Any) -> None:
        """Write a fact about a topic, and if that fails throw away the partitions that were made for it."""
        try:
            await self._catalog.write(kind, settings=catalogs.written(settings), **fact)
        except BaseException:
            await self._discard(made)
            raise

    def _publish(self, topic: LogTopic) -> None:
        self.topics[topic.name] = topic
        self._by_id[topic.id] = topic
        self._alike[alike(topic.name)] = topic.name
        self.partition_count += topic.settings.partitions

    async def _discard(self, partitions: list[LogPartition]) -> None:
        """Close partitions that are no topic's any more, and remove them from the disk."""

        async def discard(partition: LogPartition) -> None:
            await partition.close()
            await self._remove(partition.folder)

        await _all(discard, partitions)

    async def _remove(self, folder: str) -> None:
        try:
            await off_loop(self._runtime.workers, lambda: remove_folder(self._runtime.disk, folder))
        except OSError as error:
            # It belongs to no topic any more, and is removed when the topics are opened the next time.
            self._runtime.log_event(STREAMS_UPKEEP_FAILED, folder=folder, error=str(error))

    def _remove_strangers(self) -> None:
        """Remove what was half made or half deleted when the last process ended."""
        disk = self._runtime.disk
        known = {
            f"{number}-{index}"
            for number, topic in self._catalog.facts.topics.items()
            for index in range(topic.settings.partitions)
        }
        for name in disk.names(f"{self._folder}/partitions"):
            if name not in known:
                remove_folder(disk, f"{self._folder}/partitions/{name}")
        for name in sorted(known):
            if not disk.exists(f"{self._folder}/partitions/{name}/manifest"):
                raise LogCorrupted(f"{self._folder}/partitions/{name}/manifest", "it is missing")

    async def _open_topics(self) -> None:
        for facts in self._catalog.facts.topics.values():
            topic = LogTopic(facts.name, bytes.fromhex(facts.id), facts.number, facts.settings)
            # Known at once, so that whatever is open is closed if the next cannot be.
            self._publish(topic)
        await _all(self._open_topic, self._catalog.facts.topics.values())

    async def _open_topic(self, facts: TopicFacts) -> None:
        topic = self.topics[facts.name]
        topic.partitions = await self._make(topic.number, topic.settings, range(topic.settings.partitions))
        for index, known in facts.partitions.items():
            await self._trim_again(topic.number, index, topic.partitions[index], known.trimmed_offset)

    async def _trim_again(self, number: int, index: int, partition: LogPartition, trimmed_offset: int) -> None:
        end_offset = partition.log.end_offset
        if trimmed_offset > end_offset:
            # A repair has cut the log below. What is produced from now on has lower offsets, and was not trimmed.
            trimmed_offset = end_offset
            await self._catalog.write("trimmed", number=number, partition=index, offset=trimmed_offset)
        partition.trimmed_offset = trimmed_offset

    async def _close_partitions(self) -> None:
        partitions = [partition for topic in self.topics.values() for partition in topic.partitions]
        await _all(LogPartition.close, partitions)


async def _all(act: Callable[[U], Coroutine[Any, Any, T]], items: Iterable[U]) -> list[T]:
    """Do it with all of them, a few at a time; if one goes wrong the others still come to their end."""
    # Not a task for each: with thousands of items that alone would hold up the event loop.
    left = iter(enumerate(items))
    done: dict[int, T] = {}
    failed: dict[int, Exception] = {}

    async def go_on() -> None:
        for place, item in left:
            try:
                done[place] = await act(item)
            except Exception as error:  # Raised when all are done.
                failed[place] = error

    await asyncio.gather(*(go_on() for _ in range(_OPENING_MAX)))
    if failed:
        raise failed[min(failed)]
    return [result for _, result in sorted(done.items())]


def _fact(topic: LogTopic) -> dict[str, Any]:
    settings = catalogs.written(topic.settings)
    return {"number": topic.number, "id": topic.id.hex(), "name": topic.name, "settings": settings}


def _refusal(error: OSError) -> Exception:
    """Say in our words why there can be no more partitions, if that is why; else it is what it is."""
    if error.errno in NO_SPACE:
        return LogFull("the disk is full: no topic was made or changed")
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return TooManyPartitions("the system lets this process have no more files")
    return error


def remove_folder(disk: Disk, folder: str) -> None:
    """Remove a folder and the files in it, if it is there. May be interrupted and done again."""
    if not disk.exists(folder):
        return
    for name in disk.names(folder):
        disk.remove(f"{folder}/{name}")
    disk.remove_folder(folder)


def _new_id(runtime: Runtime) -> bytes:
    """Sixteen random bytes in the form of a random UUID (RFC 9562, version 4): never all zero, which means none."""
    drawn = bytearray(((runtime.dice.token() << 64 | runtime.dice.token()) & (2**128 - 1)).to_bytes(16, "big"))
    drawn[6] = drawn[6] & 0x0F | 0x40
    drawn[8] = drawn[8] & 0x3F | 0x80
    return bytes(drawn)
