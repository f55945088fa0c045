"""A partition in PostgreSQL: what this server knows of it, and the batches that it appends and reads.

    append:  check ──▶ (repack) ──▶ in line ──▶ one transaction for many ──▶ settled
    read:    from the cache, batch by batch, and from the table where that has no more

What this server knows may be older than what is there. `look` of the topic store brings it up to date, and so does
every append. Only compaction changes batches, and it counts how often: the cache is asked for those of the last count
that is known. What is below the start is not read from it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from penstock.contract.limits import MIB
from penstock.contract.topic_settings import TopicSettings
from penstock.log.interface import OffsetOutOfRange
from penstock.log.record import LEADER_EPOCH, Header
from penstock.log.record import header as read_header
from penstock.runtime.interface import Buffer
from penstock.store.postgres.database import Database
from penstock.streams.interface import (
    ACKS_ALL,
    Appended,
    PartitionNotFound,
    TopicNotFound,
    Waiter,
    first_at,
)
from penstock.streams.postgres.appender import Appender, Draft
from penstock.streams.produce_checks import as_stored, check_batch

_READ_BYTES = MIB
CACHE_BYTES_MAX = 64 * MIB

# Topic, partition, rewrites, first offset.
CacheKey: TypeAlias = tuple[int, int, int, int]


class FrameCache:
    """The batches that were read last, by where they begin, and after how many rewrites of the partition."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._frames: OrderedDict[CacheKey, tuple[int, bytes]] = OrderedDict()

    def get(self, key: CacheKey) -> tuple[int, bytes] | None:
        """Return the offset after a batch, and the batch."""
        found = self._frames.get(key)
        if found is not None:
            self._frames.move_to_end(key)
        return found

    def put(self, key: CacheKey, *, next_offset: int, batch: bytes) -> None:
        if key in self._frames:
            return
        self._frames[key] = next_offset, batch
        self._size_bytes += len(batch)
        while self._size_bytes > self._bytes_max:
            _, (_, dropped) = self._frames.popitem(last=False)
            self._size_bytes -= len(dropped)


@dataclass(frozen=True, slots=True)
class Shelf:
    """What the partitions of a store share."""

    database: Database
    appender: Appender
    cache: FrameCache
    # Tells the other servers that there is more in a partition.
    tell: Callable[[int, int], None]
    # Sees what other servers have changed about topics.
    refresh: Callable[[], Awaitable[None]]


class TablePartition:
    def __init__(self, shelf: Shelf, topic: int, index: int, settings: TopicSettings) -> None:
        self._shelf = shelf
        self.topic = topic
        self.index = index
        self.settings = settings
        self.waiting: set[Waiter] = set()
        self.start_offset = 0
        self.high_watermark = 0
        self.size_bytes = 0
        # How often compaction has replaced batches.
        self.rewrites = 0
        # Batches below were dropped by this server.
        self.dropped_offset = 0
        # Whether its topic is deleted, as far as this server knows.
        self.is_deleted = False

    def learn(self, *, start: int, confirmed: int, size_bytes: int, rewrites: int) -> None:
        """Take note of what was read: numbers but the size only rise, whichever answer comes first."""
        self.start_offset = max(self.start_offset, start)
        self.size_bytes = size_bytes
        self.rewrites = max(self.rewrites, rewrites)
        self.advance(confirmed)

    def advance(self, high_watermark: int) -> None:
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.wake()

    def tell(self) -> None:
        """Tell the other servers that there is more."""
        self._shelf.tell(self.topic, self.index)

    def wake(self) -> None:
        for waiter in tuple(self.waiting):
            waiter.wake()

    def check(self, batch: Buffer, now_ms: int, *, is_repeat: bool) -> Header:  # noqa: ARG002 - see `append`.
        return check_batch(batch, self.settings, now_ms)

    def append(self, batch: Buffer, now_ms: int, header: Header | None = None, *, acks: int = ACKS_ALL) -> Appended:
        # A caller that has checked before wants to know that nothing is doubled.
        needs_known = header is not None
        header = header or check_batch(batch, self.settings, now_ms)
        batch = as_stored(batch, header, self.settings, now_ms)
        appended_at_ms = now_ms if self.settings.has_append_time else -1
        outcome: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._shelf.appender.add(
            Draft(
                self, header, batch, latest_ms=read_header(batch).max_timestamp_ms, appended_at_ms=appended_at_ms,
                needs_known=needs_known, acks=acks, outcome=outcome,
            )
        )  # fmt: skip
        count = header.last_offset_delta + 1
        return Appended(0, count, appended_at_ms, is_duplicate=False, partition=self, outcome=outcome)

    async def settled(self, appended: Appended) -> Appended:
        assert appended.outcome is not None
        try:
            # The waiter may go; the batch is appended all the same.
            return await asyncio.shield(appended.outcome)
        except PartitionNotFound as error:
            await self._shelf.refresh()
            raise TopicNotFound(str(error)) from None

    async def room(self) -> None:
        await self._shelf.appender.room()

    async def read(self, offset: int, *, bytes_max: int) -> list[memoryview]:
        if self.is_deleted:
            raise TopicNotFound("the topic was deleted")
        if not self.start_offset <= offset <= self.high_watermark:
            known = f"from {self.start_offset} to {self.high_watermark - 1}"
            raise OffsetOutOfRange(f"there is no offset {offset}: there are offsets {known}")
        if offset == self.high_watermark:
            return []
        return self._cached(offset, bytes_max) or await self._read(offset, bytes_max)

    def _cached(self, offset: int, bytes_max: int) -> list[memoryview]:
        found: list[memoryview] = []
        while offset < self.high_watermark:
            frame = self._shelf.cache.get((self.topic, self.index, self.rewrites, offset))
            if frame is None or (found and len(frame[1]) > bytes_max):
                break
            offset, batch = frame
            bytes_max -= len(batch)
            found.append(memoryview(batch))
        return found

    async def _read(self, offset: int, bytes_max: int) -> list[memoryview]:
        # As it is known before: what is read may be newer, never older.
        rewrites = self.rewrites
        rows = await self._shelf.database.ask(
            "read_frames", topic=self.topic, partition=self.index, offset=offset, end=self.high_watermark,
            bytes_max=bytes_max,
        )  # fmt: skip
        for base, next_offset, batch in rows:
            self._shelf.cache.put((self.topic, self.index, rewrites, base), next_offset=next_offset, batch=batch)
        return [memoryview(batch) for _, _, batch in rows]

    async def offset_at(self, time_ms: int) -> tuple[int, int] | None:
        rows = await self._shelf.database.ask("frame_at", topic=self.topic, partition=self.index, time=time_ms)
        if not rows:
            return None
        offset = max(rows[0][0], self.start_offset)
        while offset < self.high_watermark:
            batches = await self._read(offset, _READ_BYTES)
            if not batches:
                return None
            for batch in batches:
                found, offset = first_at(batch, time_ms, offset, bytes_max=self.settings.unpacked_bytes_max)
                if found is not None:
                    return found
        return None

    async def newest(self) -> tuple[int, int] | None:
        ((latest_ms,),) = await self._shelf.database.ask("newest_frame", topic=self.topic, partition=self.index)
        return await self.offset_at(latest_ms) if latest_ms is not None and latest_ms >= 0 else None

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        return (LEADER_EPOCH, self.high_watermark) if epoch == LEADER_EPOCH else (-1, -1)
