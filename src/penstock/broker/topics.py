"""Topics, as front ends see them: the verbs of streams by name, with waiting for what is not there yet.

A front end translates and calls one of these; nothing here knows a protocol. What
streams and logs raise passes through:

| raised by              | what                                                                           |
|------------------------|--------------------------------------------------------------------------------|
| streams.topic          | TopicExists TopicNotFound PartitionNotFound BadTopicName TooManyPartitions     |
|                        | PartitionsCannotShrink                                                         |
| topic_settings         | BadTopicSettings (contract)                                                    |
| streams.produce_checks | CorruptBatch InvalidRecord KeylessRecord MessageTooLarge BadTimestamp          |
|                        | TransactionsUnsupported                                                        |
| streams.compression    | UnsupportedCodec UnpackedTooLarge                                              |
| streams.producer_state | OutOfOrderSequence ProducerFenced ProducerUnknown                              |
| log.interface          | LogFull LogBusy LogClosed OffsetOutOfRange                                     |
| log.recovery           | LogCorrupted: what is read is not what was written                             |

Laws of this file
-----------------
1. `append` never waits, so batches have the order in which it was called.
2. A batch is not answered before it is durable, even if it is a duplicate.
3. A fetch that waits is woken by data, by the end of a topic, and by the end of its time; nothing polls.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

from penstock.broker.access import ANONYMOUS_ADMIN, Caller, Holds, Role, Share
from penstock.contract.limits import FETCH_BYTES_MAX, FETCHES_WAITING_MAX, PARTITIONS_MAX
from penstock.log.interface import LogBusy, LogClosed, OffsetOutOfRange
from penstock.log.record import Header, record_count
from penstock.log.recovery import LogCorrupted
from penstock.runtime.interface import Buffer, Runtime
from penstock.store.errors import StoreForbids, StoreUnreachable
from penstock.streams.interface import (
    ACKS_ALL,
    Appended,
    Partition,
    PartitionNotFound,
    TooManyPartitions,
    Topic,
    TopicNotFound,
    TopicStore,
    Waiter,
)

__all__ = [
    "FetchOne",
    "Fetched",
    "Produced",
    "StoreForbids",
    "StoreUnreachable",
    "TooManyFetches",
    "TopicTotals",
    "Topics",
]


class Produced(NamedTuple):
    base_offset: int
    # The time all records of the batch got, or -1 if they kept their own.
    appended_at_ms: int
    # Of the partition, at the time of the answer.
    start_offset: int
    # Whether the batch had been there before: a producer sent it again, and the offset is that of the first time.
    is_duplicate: bool


class FetchOne(NamedTuple):
    """What is wanted of one partition."""

    topic: str
    partition: int
    offset: int
    bytes_max: int


@dataclass(slots=True)
class Fetched:
    """What there was in one partition. The bytes are views of what was read; they stay what they are."""

    # TopicNotFound, PartitionNotFound, OffsetOutOfRange or LogCorrupted; then there are no batches.
    error: Exception | None = None
    batches: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    high_watermark: int = -1
    start_offset: int = -1
    # Whether there was a batch that was larger than there was room for.
    is_cut_short: bool = False


# In the class below, `list` is a verb.
Answers: TypeAlias = list[Fetched]
Made: TypeAlias = list[Topic | Exception]


@dataclass(slots=True)
class TopicTotals:
    """What went through one topic since the server started."""

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class TooManyFetches(Exception):
    """As many fetches are waiting as may."""


class Topics:
    def __init__(self, runtime: Runtime, streams: TopicStore, *, waiting_max: int = FETCHES_WAITING_MAX) -> None:
        self._clock = runtime.clock
        # Topics are made, changed, found and deleted there; here is what waits and what is shared by callers.
        self.streams = streams
        self._waiting_max = waiting_max
        self._waiting: set[Waiter] = set()
        # What one key may have of what all share.
        self.share = Share()
        self.fetches = Holds(waiting_max, self.share, lambda most: TooManyFetches(f"{most} fetches of the key wait"))
        self._is_stopping = False
        self.totals: dict[str, TopicTotals] = {}

    def stop(self) -> None:
        """Answer every fetch that waits, and let none wait any more."""
        self._is_stopping = True
        for waiter in tuple(self._waiting):
            waiter.wake()

    async def close(self) -> None:
        self.stop()
        await self.streams.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Topics.

    def check_share(self, caller: Caller, partitions: int) -> None:
        """Raise `TooManyPartitions` if a caller would have more of them than its share."""
        (refusal,) = self.beyond_share(caller, [partitions])
        if refusal is not None:
            raise refusal

    def beyond_share(self, caller: Caller, wanted: Sequence[int]) -> list[TooManyPartitions | None]:
        """Say which of so many partitions each, after those before them, would be more than the share of a caller."""
        most = self.share.most(caller, PARTITIONS_MAX)
        left = most - self.streams.partition_count
        if sum(wanted) > left:
            # All that there are do not fit with these; those that count may. It takes a look at every topic.
            left = self.share_left(caller)
        refusals: list[TooManyPartitions | None] = []
        for partitions in wanted:
            words = f"with {partitions} more, the key {caller.name!r} would have more than {most}"
            refusals.append(TooManyPartitions(words) if partitions > left else None)
            left -= partitions if partitions <= left else 0
        return refusals

    def share_left(self, caller: Caller) -> int:
        """Return how many partitions more a caller may have: all that it may administer count."""
        if caller is ANONYMOUS_ADMIN:
            return PARTITIONS_MAX
        counted = sum(
            len(each.partitions) for each in self.streams.topics.values() if caller.has(Role.ADMIN, each.name)
        )
        return self.share.most(caller, PARTITIONS_MAX) - counted

    async def refresh(self) -> None:
        """See what other servers have changed about topics until now; if that cannot be seen, what is known counts."""
        with suppress(StoreUnreachable, StoreForbids):
            await self.streams.refresh()

    async def look(self, places: Iterable[tuple[str, int]]) -> None:
        """See where these partitions begin and end now, also by what other servers did."""
        await self.streams.look(places)

    async def look_at(self, topics: Iterable[Topic]) -> None:
        """See where all partitions of some topics begin and end now."""
        await self.look((topic.name, index) for topic in topics for index in range(len(topic.partitions)))

    def list(self) -> list[Topic]:
        """Return all topics, by name."""
        return [topic for _, topic in sorted(self.streams.topics.items())]

    def has(self, name: str) -> bool:
        return name in self.streams.topics

    # Records in.

    def check(self, topic: str, partition: int, batch: Buffer, *, is_repeat: bool) -> Header:
        """Raise what `append` would raise now, and `ProducerUnknown` where it would rather double than refuse."""
        return self._partition(topic, partition).check(batch, self._clock.now_ms(), is_repeat=is_repeat)

    def append(
        self, topic: str, partition: int, batch: Buffer, header: Header | None = None, *, acks: int = ACKS_ALL
    ) -> Appended:
        """Take one record batch, at once or not at all; it is durable only after `settled`.

        ``header`` is what `check` said of it. With ``acks`` of 0 no caller has to wait for `settled`.

        The bytes are kept, not copied: they must not change any more. `LogBusy` says
        that too much waits for the disk: wait for `room`, and try again before anything
        that came later on the same connection.
        """
        appended = self._partition(topic, partition).append(batch, self._clock.now_ms(), header, acks=acks)
        if not appended.is_duplicate:
            total = self._total(topic)
            total.records_in += appended.next_offset - appended.base_offset
            total.bytes_in += len(batch)
        return appended

    async def settled(self, topic: str, partition: int, appended: Appended) -> Produced:
        """Return when a batch is durable, or the one that it repeats; raises if its topic is deleted meanwhile."""
        # Not looked up by its name: there may be another topic of that name by now.
        found = appended.partition
        try:
            appended = await found.settled(appended)
        except LogClosed:
            self._partition(topic, partition)
            raise
        return _produced(found, appended)

    async def room(self, topic: str, partition: int) -> None:
        """Return when some of what waits for the disk of a partition has been written."""
        await self._partition(topic, partition).room()

    async def produce(self, topic: str, partition: int, batches: Buffer, *, waits: bool = True) -> Produced:
        """Append one record batch and, if ``waits``, return when it is durable."""
        while True:
            try:
                appended = self.append(topic, partition, batches)
                break
            except LogBusy:
                await self.room(topic, partition)
        return await self.settled(topic, partition, appended) if waits else _produced(appended.partition, appended)

    # Records out.

    async def fetch(
        self, wanted: Sequence[FetchOne], *, bytes_max: int, bytes_min: int = 1, wait_ms: int = 0
    ) -> Answers:
        """Return whole batches of each partition, from the one holding the wanted offset on.

        All together are at most ``bytes_max``, and those of one partition at most its
        own, but for the very first batch, which comes however large it is: otherwise no
        client could ever read on. If there are fewer than ``bytes_min`` bytes, and nothing is
        wrong with any partition, waits for more, up to ``wait_ms``.
        """
        ends_at = asyncio.get_running_loop().time() + wait_ms / 1_000
        places = [(one.topic, one.partition) for one in wanted]
        while True:
            with suppress(StoreUnreachable, StoreForbids):
                # What was read before can be read again while a database is away.
                await self.streams.look(places)
            fetched = await self._read(wanted, min(bytes_max, FETCH_BYTES_MAX))
            missing = bytes_min - sum(one.size_bytes for one in fetched)
            is_wrong = any(one.error is not None for one in fetched)
            if missing <= 0 or is_wrong or self._is_over(ends_at):
                return fetched
            await self._wait(wanted, fetched, missing, ends_at)

    def _count_read(self, topic: str, answer: Fetched) -> None:
        total = self._total(topic)
        total.records_out += sum(record_count(batch) for batch in answer.batches)
        total.bytes_out += answer.size_bytes

    def _total(self, topic: str) -> TopicTotals:
        total = self.totals.get(topic)
        if total is None:
            total = self.totals[topic] = TopicTotals()
        return total

    def _is_over(self, ends_at: float) -> bool:
        return self._is_stopping or asyncio.get_running_loop().time() >= ends_at

    async def _read(self, wanted: Sequence[FetchOne], bytes_max: int) -> Answers:
        """Look at one partition after the other.

        The answer is full with the first batch that finds no room: to look on would
        read and check a batch of each of the others, only to throw it away.
        """
        fetched: Answers = []
        left = bytes_max
        has_any = False
        for one in wanted:
            try:
                found = self._partition(one.topic, one.partition)
                answer = await _read_one(found, one, min(left, one.bytes_max), is_first=not has_any)
            except (TopicNotFound, PartitionNotFound) as error:
                answer = Fetched(error)
            has_any |= bool(answer.batches)
            if answer.batches:
                self._count_read(one.topic, answer)
            left = 0 if answer.is_cut_short and left <= one.bytes_max else left - answer.size_bytes
            fetched.append(answer)
        return fetched

    async def _wait(
        self, wanted: Sequence[FetchOne], fetched: Sequence[Fetched], missing_bytes: int, ends_at: float
    ) -> None:
        """Return when there may be more: nothing can come between the look at each partition and the wait."""
        if len(self._waiting) >= self._waiting_max:
            raise TooManyFetches(f"{self._waiting_max} fetches are waiting already")
        try:
            partitions = [self._partition(one.topic, one.partition) for one in wanted]
        except (TopicNotFound, PartitionNotFound):
            # Gone just now: the next look tells.
            return
        if any(found.high_watermark != one.high_watermark for found, one in zip(partitions, fetched, strict=True)):
            return
        waiter = Waiter(missing_bytes)
        self._waiting.add(waiter)
        for partition in partitions:
            partition.waiting.add(waiter)
        try:
            await waiter.wait(ends_at)
        finally:
            self._waiting.discard(waiter)
            for partition in partitions:
                partition.waiting.discard(waiter)

    # Offsets.

    def earliest(self, topic: str, partition: int) -> int:
        return self._partition(topic, partition).start_offset

    def latest(self, topic: str, partition: int) -> int:
        """Return the high watermark: the offset of the next record that can be read."""
        return self._partition(topic, partition).high_watermark

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> tuple[int, int] | None:
        """Return offset and time of the first record of this time or later; None if there is none."""
        return await self._partition(topic, partition).offset_at(time_ms)

    async def max_timestamp(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return offset and time of the record with the latest time; None if there is none."""
        return await self._partition(topic, partition).newest()

    def ends(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the first offset and the high watermark; None if there is no such partition."""
        try:
            found = self._partition(topic, partition)
        except (TopicNotFound, PartitionNotFound):
            return None
        return found.start_offset, found.high_watermark

    def epoch_end(self, topic: str, partition: int, epoch: int) -> tuple[int, int]:
        """Return ``epoch`` and the offset where it ends; (-1, -1) if there is no such epoch."""
        return self._partition(topic, partition).epoch_end(epoch)

    def _partition(self, topic: str, partition: int) -> Partition:
        return self.streams.find(topic).partition(partition)


def _produced(partition: Partition, appended: Appended) -> Produced:
    return Produced(appended.base_offset, appended.appended_at_ms, partition.start_offset, appended.is_duplicate)


async def _read_one(found: Partition, one: FetchOne, bytes_max: int, *, is_first: bool) -> Fetched:
    answer = Fetched(high_watermark=found.high_watermark, start_offset=found.start_offset)
    if not is_first and bytes_max <= 0:
        return answer
    try:
        batches = await found.read(one.offset, bytes_max=max(bytes_max, 1))
    except (OffsetOutOfRange, LogCorrupted, StoreUnreachable) as error:
        answer.error = error
        return answer
    except (LogClosed, TopicNotFound) as error:
        answer.error = TopicNotFound(str(error))
        return answer
    if batches and (is_first or len(batches[0]) <= bytes_max):
        answer.batches = batches
        answer.size_bytes = sum(map(len, batches))
    answer.is_cut_short = bool(batches) and not answer.batches
    return answer
