"""Looks after partitions: what is too old or too much goes, compacted ones are cleaned, producers are written down.

A partition is looked at when one of its segments has been closed, when somebody has
trimmed it, and all are from time to time. Whatever goes wrong is tried again.
"""

import asyncio
import traceback
from collections.abc import Iterator
from typing import Protocol

from penstock.log.interface import LogBusy, LogClosed, LogFull
from penstock.log.retention import first_kept_offset
from penstock.runtime.interface import Runtime
from penstock.streams.catalog import PartitionFacts
from penstock.streams.partition import Partition
from penstock.streams.topic import Topic
from penstock.telemetry import STREAMS_UPKEEP_FAILED


class Books(Protocol):
    """What upkeep needs of whoever has the topics."""

    topics: dict[str, Topic]

    def partition_facts(self, topic: Topic, index: int) -> PartitionFacts: ...

    async def cleaned(self, topic: Topic, index: int, offset: int, at_ms: int) -> None:
        """Take note, durably, that a cleaning has looked at everything below an offset."""
        ...


class Upkeep:
    def __init__(self, runtime: Runtime, books: Books, *, every_ms: int, all_every_ms: int) -> None:
        self._runtime = runtime
        self._books = books
        self._every_ms = every_ms
        self._all_every_ms = all_every_ms
        self._woken: set[Partition] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        # Not a TaskGroup's: it lives until `stop`, which awaits it.
        self._task = asyncio.create_task(self._run())  # noqa: TID251

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def wake(self, partition: Partition) -> None:
        """Have a partition looked at soon."""
        self._woken.add(partition)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        all_at = loop.time() + self._all_every_ms / 1_000
        while True:
            await asyncio.sleep(self._every_ms / 1_000)
            is_time_for_all = loop.time() >= all_at
            if is_time_for_all:
                all_at = loop.time() + self._all_every_ms / 1_000
            for topic, index in list(self._partitions()):
                partition = topic.partitions[index]
                if is_time_for_all or partition.log.rolled.is_set() or partition in self._woken:
                    self._woken.discard(partition)
                    partition.log.rolled.clear()
                    await self._cares(topic, index)

    def _partitions(self) -> Iterator[tuple[Topic, int]]:
        for topic in self._books.topics.values():
            for index in range(len(topic.partitions)):
                yield topic, index

    async def _cares(self, topic: Topic, index: int) -> None:
        """Do something that may go wrong without harm, because it is tried again."""
        try:
            await self.look_after(topic, index)
        except (LogBusy, LogFull, LogClosed):
            # There is no room now, or the topic has just been deleted.
            pass
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            self._runtime.note(STREAMS_UPKEEP_FAILED, topic=topic.name, partition=index, error=text)

    async def look_after(self, topic: Topic, index: int) -> None:
        partition = topic.partitions[index]
        now_ms = self._runtime.clock.now_ms()
        async with partition.upkeep_lock:
            partition.producers.forget_silent(now_ms)
            await retain(partition, now_ms)
            await partition.remember_closed()


async def retain(partition: Partition, now_ms: int) -> None:
    """Let go of whole segments: what was trimmed and, unless the topic is only compacted, what is old or too much."""
    log, settings = partition.log, partition.settings
    active = log.segments[-1]
    has_records = active.next_offset > active.base_offset
    age_ms = settings.retention_ms if settings.is_deleted else None
    is_old = age_ms is not None and active.max_timestamp_ms < now_ms - age_ms
    if has_records and (is_old or partition.trimmed_offset >= active.next_offset):
        # Only a closed segment can go, and nothing may come any more that would close this one.
        await log.roll()
    kept = partition.trimmed_offset
    if settings.is_deleted:
        kept = max(
            kept,
            first_kept_offset(
                log.segments, now_ms=now_ms, age_ms_max=settings.retention_ms, bytes_max=settings.retention_bytes
            ),
        )
    await log.drop_before(kept)
