"""A partition in a folder: a log, what its producers sent last, and the fetches that wait for more.

    append:  check ──▶ judge the sequence ──▶ (repack) ─▶ reserve, append ──▶ note the sequence
             └───────────────── no await: no other append comes between ──────────────────────┘

Offsets: `start_offset` ≤ `high_watermark` ≤ `end_offset`.
"""

import asyncio
from dataclasses import replace
from typing import TypeAlias

from penstock.contract.topic_settings import TopicSettings
from penstock.log.disk_log import DiskLog
from penstock.log.interface import OffsetOutOfRange
from penstock.log.record import LEADER_EPOCH, Header
from penstock.log.segment import Segment
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Buffer, Runtime
from penstock.streams.interface import ACKS_ALL, Appended, TopicOf, Waiter, first_at
from penstock.streams.produce_checks import as_stored, check_batch
from penstock.streams.producer_state import Producers, recall, remember

_READ_BYTES = 1 << 20
_MOMENT_S = 0.001
# What opening reads of the active segment, if the last stop was clean. It is a segment of its own if it is more.
_REREAD_BYTES_MAX = 16 << 20


class LogPartition:
    def __init__(self, runtime: Runtime, folder: str, log: DiskLog, settings: TopicSettings) -> None:
        self._runtime = runtime
        self.folder = folder
        self.log = log
        self.settings = settings
        self.producers = Producers()
        # The offset of the newest snapshot of the producers that is on the disk; -1 for none.
        self.remembered_offset = -1
        # Records below were trimmed, although their segment may still be there.
        self.trimmed_offset = 0
        # Of segments whose records have no time: how far they went when they were last seen to grow, and when that was.
        self._grown: dict[int, tuple[int, int]] = {}
        self.waiting: set[Waiter] = set()
        # Dropping and replacing segments, and closing the log, take turns. Nothing is done to a log that is closed:
        # its folder may be gone.
        self.upkeep_lock = asyncio.Lock()
        self.is_closed = False
        # Something was written since the last look at it. There may be thousands of partitions, and most are quiet.
        self.has_news = False
        log.advanced = self._advanced

    @classmethod
    async def open(
        cls, runtime: Runtime, folder: str, settings: TopicSettings, log_settings: LogSettings
    ) -> "LogPartition":
        """Open a partition, or make it, in a folder that is taken already.

        Its producers are remembered: only what came since the snapshot is read.
        """
        log = await DiskLog.open(runtime, folder, sized(log_settings, settings), takes_lock=False)
        partition = cls(runtime, folder, log, settings)
        try:
            partition.producers, partition.remembered_offset = await recall(runtime, folder, log)
        except BaseException:
            await log.close()
            raise
        return partition

    async def close(self) -> None:
        """Write what is waiting, and what is known of producers; then let the folder go."""
        for waiter in tuple(self.waiting):
            waiter.wake()
        async with self.upkeep_lock:
            if self.is_closed:
                return
            self.is_closed = True
            await self.log.wait_durable(self.log.end_offset)
            if self.log.segments[-1].size_bytes > _REREAD_BYTES_MAX:
                await self.log.roll()
            await self.remember()
            await self.log.close()

    async def watch(self) -> None:
        """Stop the process if the files were taken away."""
        if not self.is_closed:
            await self.log.watch()

    @property
    def start_offset(self) -> int:
        return max(self.log.start_offset, self.trimmed_offset)

    @property
    def high_watermark(self) -> int:
        return self.log.durable_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.log.segments)

    def timed_segments(self, now_ms: int) -> list[Segment]:
        """Return all segments, and for records without a time the time at which they were seen: they age, too.

        What was there when the partition was opened was seen then.
        """
        segments: list[Segment] = []
        grown, self._grown = self._grown, {}
        for segment in self.log.segments:
            if segment.max_timestamp_ms < 0:
                next_offset, at_ms = grown.get(segment.base_offset, (-1, now_ms))
                at_ms = at_ms if next_offset == segment.next_offset else now_ms
                self._grown[segment.base_offset] = segment.next_offset, at_ms
                segments.append(replace(segment, max_timestamp_ms=at_ms))
            else:
                segments.append(segment)
        return segments

    def change(self, settings: TopicSettings) -> None:
        self.settings = settings
        self.log.resize_segments(bytes_max=settings.segment_bytes, age_ms_max=segment_ms(settings))

    def check(self, batch: Buffer, now_ms: int, *, is_repeat: bool) -> Header:
        """Return the header of a batch that `append` would take now, of a producer that is surely known or new."""
        header = check_batch(batch, self.settings, now_ms)
        if header.producer_id >= 0:
            self.producers.check_known(header, is_repeat=is_repeat)
            self.producers.judge(header)
        return header

    # How many are to have a batch makes no difference: it is on this disk, or not.
    def append(
        self,
        batch: Buffer,
        now_ms: int,
        header: Header | None = None,
        *,
        acks: int = ACKS_ALL,  # noqa: ARG002
    ) -> Appended:
        """Take one produced batch; ``header`` if it was checked. Raises what `check_batch`, `Producers.judge`,
        `as_stored` and `Log.reserve` do, and then nothing has changed."""
        settings, log = self.settings, self.log
        header = header or check_batch(batch, settings, now_ms)
        if header.producer_id >= 0 and (sent := self.producers.judge(header)) is not None:
            return Appended(sent.base_offset, sent.next_offset, sent.appended_at_ms, is_duplicate=True, partition=self)
        batch = as_stored(batch, header, settings, now_ms)
        appended_at_ms = now_ms if settings.has_append_time else -1
        with log.reserve(len(batch)) as space:
            base_offset = log.append(batch, space)
        if header.producer_id >= 0:
            self.producers.add(header, base_offset, appended_at_ms=appended_at_ms, now_ms=now_ms)
        return Appended(base_offset, log.end_offset, appended_at_ms, is_duplicate=False, partition=self)

    async def settled(self, appended: Appended) -> Appended:
        await self.log.wait_durable(appended.next_offset)
        return appended

    async def room(self) -> None:
        """Return when some of what waits for the disk has been written."""
        log = self.log
        if log.end_offset > log.durable_offset:
            await log.wait_durable(log.durable_offset + 1)
        else:
            # A segment is being closed although nothing is written: that takes a moment.
            await asyncio.sleep(_MOMENT_S)

    def _advanced(self, size_bytes: int) -> None:
        self.has_news = True
        for waiter in tuple(self.waiting):
            waiter.feed(size_bytes)

    async def read(self, offset: int, *, bytes_max: int) -> list[memoryview]:
        """Return whole batches from the one holding ``offset`` on; none if there is nothing yet."""
        if not self.start_offset <= offset <= self.log.end_offset:
            known = f"from {self.start_offset} to {self.high_watermark - 1}"
            raise OffsetOutOfRange(f"there is no offset {offset}: there are offsets {known}")
        if offset >= self.log.durable_offset:
            return []
        return await self.log.read(offset, bytes_max=bytes_max)

    async def offset_at(self, time_ms: int) -> tuple[int, int] | None:
        """Return offset and time of the first record of this time or later; None if there is none."""
        offset = max(await self.log.offset_at(time_ms), self.start_offset)
        while offset < self.high_watermark:
            for batch in await self.log.read(offset, bytes_max=_READ_BYTES):
                found, offset = first_at(batch, time_ms, offset, bytes_max=self.settings.unpacked_bytes_max)
                if found is not None:
                    return found
        return None

    async def newest(self) -> tuple[int, int] | None:
        """Return offset and time of the record with the latest time; None if there is none."""
        latest_ms = max(segment.max_timestamp_ms for segment in self.log.segments)
        return await self.offset_at(latest_ms) if latest_ms >= 0 else None

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return ``epoch`` and where it ends; (-1, -1) if there is no such epoch: the leader never changes."""
        return (LEADER_EPOCH, self.log.end_offset) if epoch == LEADER_EPOCH else (-1, -1)

    async def remember_closed(self) -> None:
        """Remember if a segment was closed since the last time: opening then reads little more than the active one."""
        if self.remembered_offset < self.log.segments[-1].base_offset:
            await self.remember()

    async def remember(self) -> None:
        """Write down what is known of producers, so that opening need not read the whole log."""
        offset = self.log.end_offset
        if offset == self.remembered_offset or not offset:
            return
        snapshot = self.producers.to_bytes(offset)
        # A snapshot must not know more than the log after a crash.
        await self.log.wait_durable(offset)
        if await remember(self._runtime, self.folder, snapshot):
            self.remembered_offset = offset


LogTopic: TypeAlias = TopicOf[LogPartition]


def sized(log_settings: LogSettings, settings: TopicSettings) -> LogSettings:
    """Return how the log of a partition behaves that has these settings."""
    return replace(log_settings, segment_bytes_max=settings.segment_bytes, segment_age_ms_max=segment_ms(settings))


def segment_ms(settings: TopicSettings) -> int:
    """Return how long a segment is written to: only what is closed can be compacted."""
    lag_ms_max = settings.compaction_lag_ms_max if settings.is_compacted else None
    return settings.segment_ms if lag_ms_max is None else min(settings.segment_ms, lag_ms_max)
