"""Maintains partitions: drops what is too old or too much, compacts, and saves what is known of producers.

A partition is looked at when one of its segments has been closed or it was trimmed, and
all are from time to time. What fails is tried again.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Sequence
from typing import Protocol

import msgspec

from penstock.log.interface import LogBusy, LogClosed, LogFull
from penstock.log.record import HEADER_BYTES
from penstock.log.record import header as read_header
from penstock.log.segment import Segment, first_kept_offset
from penstock.runtime.interface import BackgroundProcessFailed, Runtime
from penstock.streams.compaction import cleaned_before
from penstock.streams.embedded import compaction
from penstock.streams.embedded.compaction import ClosedSegment, CompactionRequest
from penstock.streams.embedded.partition import LogPartition, LogTopic
from penstock.streams.embedded.topic_catalog import PartitionFacts
from penstock.telemetry import STREAMS_CLEANED, STREAMS_UPKEEP_FAILED


class TopicRegistry(Protocol):
    """What maintenance needs of the topic store."""

    topics: dict[str, LogTopic]

    def partition_facts(self, topic: LogTopic, index: int) -> PartitionFacts: ...

    async def watch(self) -> None:
        """Stop the process if the files of the catalog were taken away."""
        ...

    async def cleaned(self, topic: LogTopic, index: int, offset: int, at_ms: int) -> None:
        """Take note, durably, that a cleaning has looked at everything below an offset."""
        ...


class Maintenance:
    def __init__(self, runtime: Runtime, registry: TopicRegistry, *, every_ms: int, all_every_ms: int) -> None:
        self._runtime = runtime
        self._registry = registry
        self._every_ms = every_ms
        self._all_every_ms = all_every_ms
        self._woken: set[LogPartition] = set()
        # Compacted partitions that may have to be cleaned, each once, in the order of their coming.
        self._to_clean: dict[LogPartition, tuple[LogTopic, int]] = {}
        self._has_to_clean = asyncio.Event()
        self._cleaned_now: tuple[LogPartition, asyncio.Task[None]] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for work in (self._look_after_all(), self._clean_all()):
            # Not a TaskGroup's: they live until `stop`, which awaits them.
            self._tasks.append(asyncio.create_task(work))  # noqa: TID251

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._cleaned_now is not None:
            await self.let_go(self._cleaned_now[0])
        if self._tasks:
            await asyncio.wait(self._tasks)

    def wake(self, partition: LogPartition) -> None:
        """Have a partition looked at soon."""
        self._woken.add(partition)

    async def let_go(self, partition: LogPartition) -> None:
        """Stop cleaning a partition that is about to go."""
        self._to_clean.pop(partition, None)
        self._woken.discard(partition)
        if self._cleaned_now is not None and self._cleaned_now[0] is partition:
            _, task = self._cleaned_now
            task.cancel()
            await asyncio.wait([task])

    async def _look_after_all(self) -> None:
        loop = asyncio.get_running_loop()
        all_at = loop.time() + self._all_every_ms / 1_000
        while True:
            await asyncio.sleep(self._every_ms / 1_000)
            is_time_for_all = loop.time() >= all_at
            if is_time_for_all:
                all_at = loop.time() + self._all_every_ms / 1_000
            await self._registry.watch()
            for topic, index in self._due(is_time_for_all=is_time_for_all):
                partition = topic.partitions[index]
                if partition.has_news:
                    partition.has_news = False
                    await partition.watch()
                if is_time_for_all or partition.log.rolled.is_set() or partition in self._woken:
                    self._woken.discard(partition)
                    partition.log.rolled.clear()
                    await self._cares(topic, index, self.look_after(topic, index))
                    # Most of them need nothing, and there may be thousands: others have their turn between.
                    await asyncio.sleep(0)

    def _due(self, *, is_time_for_all: bool) -> list[tuple[LogTopic, int]]:
        return [
            (topic, index)
            for topic in self._registry.topics.values()
            for index, partition in enumerate(topic.partitions)
            if is_time_for_all or partition.has_news or partition in self._woken
        ]

    async def _cares(self, topic: LogTopic, index: int, work: Awaitable[None]) -> None:
        """Do something that may go wrong without harm, because it is tried again."""
        try:
            await work
        except (LogBusy, LogFull, LogClosed):
            # There is no room now, or the topic has just been deleted.
            pass
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            self._runtime.log_event(STREAMS_UPKEEP_FAILED, topic=topic.name, partition=index, error=text)

    async def look_after(self, topic: LogTopic, index: int) -> None:
        """Drop what is beyond the retention, and save what is known of producers."""
        partition = topic.partitions[index]
        now_ms = self._runtime.clock.now_ms()
        async with partition.upkeep_lock:
            if partition.is_closed:
                return
            partition.producers.forget_silent(now_ms)
            await retain(partition, now_ms)
            await partition.remember_closed()
        if topic.settings.is_compacted:
            self._to_clean[partition] = topic, index
            self._has_to_clean.set()

    async def _clean_all(self) -> None:
        """Clean one partition after the other: one process for that is enough."""
        while True:
            await self._has_to_clean.wait()
            while self._to_clean:
                partition, (topic, index) = next(iter(self._to_clean.items()))
                del self._to_clean[partition]
                # Not a TaskGroup's: `let_go` may end it, and it is awaited right here.
                task = asyncio.create_task(self._cares(topic, index, self.clean(topic, index)))  # noqa: TID251
                self._cleaned_now = partition, task
                await asyncio.wait([task])
                self._cleaned_now = None
            self._has_to_clean.clear()

    async def clean(self, topic: LogTopic, index: int) -> None:
        """Clean a compacted partition if enough of it has not been looked at."""
        partition = topic.partitions[index]
        facts, now_ms = self._registry.partition_facts(topic, index), self._runtime.clock.now_ms()
        count = old_enough(partition.timed_segments(now_ms)[:-1], now_ms - topic.settings.compaction_lag_ms_min)
        closed = partition.log.segments[:count]
        if self._registry.topics.get(topic.name) is not topic:
            return
        is_due = is_dirty(closed, facts.cleaned_offset, topic.settings.dirty_percent_max)
        if not is_due and not await is_overdue(partition, closed, facts.cleaned_offset, now_ms):
            return
        order = CompactionRequest(
            folder=partition.folder,
            log_id=partition.log.log_id,
            segments=[ClosedSegment(each.base_offset, each.next_offset, each.size_bytes) for each in closed],
            cleaned_offset=facts.cleaned_offset,
            tombstones_before=cleaned_before(facts.cleanings, now_ms - topic.settings.tombstone_ms),
            segment_bytes_max=topic.settings.segment_bytes,
        )
        done = await self._run_aside(order)
        async with partition.upkeep_lock:
            if partition.is_closed:
                return
            for each in done.rewritten:
                await _put_in_place(partition, closed[each.first : each.first + each.count], each)
        await self._registry.cleaned(topic, index, done.cleaned_offset, now_ms)
        self._note_cleaned(topic, index, closed, partition)

    async def _run_aside(self, order: CompactionRequest) -> compaction.CompactionResult:
        try:
            answer = await self._runtime.aside.run(compaction.clean, msgspec.msgpack.encode(order))
        except BackgroundProcessFailed as error:
            if error.is_disk_failure:
                self._runtime.halt(str(error))
            raise
        return msgspec.msgpack.decode(answer, type=compaction.CompactionResult)

    def _note_cleaned(self, topic: LogTopic, index: int, before: Sequence[Segment], partition: LogPartition) -> None:
        after = [each for each in partition.log.segments[:-1] if each.base_offset < before[-1].next_offset]
        self._runtime.log_event(
            STREAMS_CLEANED,
            topic=topic.name,
            partition=index,
            bytes_before=sum(each.size_bytes for each in before),
            bytes_after=sum(each.size_bytes for each in after),
        )


def is_dirty(closed: Sequence[Segment], cleaned_offset: int, percent_max: int) -> bool:
    """Whether so much of the closed segments was not looked at by a cleaning that it is worth another."""
    dirty_bytes = sum(each.size_bytes for each in closed if each.next_offset > cleaned_offset)
    return dirty_bytes > 0 and dirty_bytes * 100 >= percent_max * sum(each.size_bytes for each in closed)


def old_enough(closed: Sequence[Segment], before_ms: int) -> int:
    """Return how many segments there are before the first that has a record of a later time."""
    return next((place for place, each in enumerate(closed) if each.max_timestamp_ms > before_ms), len(closed))


async def is_overdue(partition: LogPartition, closed: Sequence[Segment], cleaned_offset: int, now_ms: int) -> bool:
    """Whether the first record that no cleaning has looked at has waited for as long as it may."""
    lag_ms_max = partition.settings.compaction_lag_ms_max
    if lag_ms_max is None or not closed or closed[-1].next_offset <= cleaned_offset:
        return False
    fronts = await partition.log.fronts(max(cleaned_offset, closed[0].base_offset), most=1, front_bytes=HEADER_BYTES)
    return bool(fronts) and read_header(fronts[0]).base_timestamp_ms <= now_ms - lag_ms_max


async def _put_in_place(partition: LogPartition, old: Sequence[Segment], each: compaction.RewrittenSegment) -> None:
    log = partition.log
    known = log.segments
    if any(segment not in known for segment in old):
        # Dropped meanwhile. The file goes with the next cleaning.
        return
    new = Segment(old[0].base_offset, old[-1].next_offset, each.size_bytes, each.max_timestamp_ms)
    await log.replace_closed(old, new, each.name)


async def retain(partition: LogPartition, now_ms: int) -> None:
    """Drop whole segments: what was trimmed and, unless the topic is only compacted, what is old or too much."""
    log, settings = partition.log, partition.settings
    active = partition.timed_segments(now_ms)[-1]
    has_records = active.next_offset > active.base_offset
    age_ms = settings.retention_ms if settings.is_deleted else None
    lag_ms_max = settings.compaction_lag_ms_max if settings.is_compacted else None
    is_old = any(each is not None and active.max_timestamp_ms < now_ms - each for each in (age_ms, lag_ms_max))
    if has_records and (is_old or partition.trimmed_offset >= active.next_offset):
        # Only a closed segment can go, and nothing may come any more that would close this one.
        await log.roll()
    kept = partition.trimmed_offset
    if settings.is_deleted:
        kept = max(
            kept,
            first_kept_offset(
                partition.timed_segments(now_ms),
                now_ms=now_ms,
                age_ms_max=settings.retention_ms,
                bytes_max=settings.retention_bytes,
            ),
        )
    await log.drop_before(kept)
