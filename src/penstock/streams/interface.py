"""What a store of topics promises, whichever engine keeps them: a folder, or PostgreSQL.

    a topic      a name, an id that is never used again, its settings and its partitions
    a partition  record batches in the order of their offsets, what producers sent last, and fetches that wait

Offsets: `start_offset` ≤ `high_watermark`. What is below the high watermark is durable,
and only that is read. An engine may be shared by several servers: then this process
knows what it has seen, and `refresh` and `look` make it see what is there now.

One suite (`tests/conformance/topics.py`) holds each engine to this.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from penstock.contract.limits import TOPIC_NAME_CHARACTERS_MAX
from penstock.contract.topic_settings import TopicSettings
from penstock.log.record import BadBatch, Header
from penstock.log.record import header as read_header
from penstock.runtime.interface import Buffer, Timings
from penstock.streams.compression import BadlyPacked, UnpackedTooLarge, UnsupportedCodec, entries, unpacked
from penstock.streams.produce_checks import APPEND_TIME_ATTRIBUTE

# What is to have a batch before it is answered: every synchronous standby, this machine's disk, or none of them.
ACKS_ALL, ACKS_LEADER, ACKS_NONE = -1, 1, 0

_NAME = re.compile(r"[A-Za-z0-9._-]+")


class TopicExists(Exception):
    """There is a topic of this name, or one that differs only in dots and underscores."""


class TopicNotFound(Exception):
    """There is no topic of this name or id."""


class PartitionNotFound(Exception):
    """The topic has no partition of this number."""


class BadTopicName(ValueError):
    """No topic may be called so; the message says why."""


class TooManyPartitions(Exception):
    """There are as many topics or partitions as there may be."""


class PartitionsCannotShrink(ValueError):
    """A topic may get more partitions, never fewer: where would the records go?"""


class Partition(Protocol):
    """One partition. Nothing that only reads here waits for another server, but for what says `async`."""

    # Fetches that are to be woken by what is appended, and by the end of the topic.
    waiting: "set[Waiter]"

    @property
    def start_offset(self) -> int:
        """The first offset that may be read."""
        ...

    @property
    def high_watermark(self) -> int:
        """The offset of the next record that can be read: all below is durable."""
        ...

    @property
    def size_bytes(self) -> int:
        """What its records take."""
        ...

    def check(self, batch: Buffer, now_ms: int, *, is_repeat: bool) -> Header:
        """Return the header of a batch that `append` would take, and that surely doubles nothing.

        Whether its producer is known may be found out only by `settled`.
        """
        ...

    def append(self, batch: Buffer, now_ms: int, header: Header | None = None, *, acks: int = ACKS_ALL) -> "Appended":
        """Take one produced batch, at once or not at all: batches have the order of the calls.

        ``header`` is what `check` said of it. Raises what `check_batch` and `as_stored` do, `LogBusy` and
        `LogFull`. What producers did wrong is raised here or by `settled`.
        """
        ...

    async def settled(self, appended: "Appended") -> "Appended":
        """Return what became of a batch, when as many as it asked for have it: a duplicate has the first offset."""
        ...

    async def room(self) -> None:
        """Return when some of what waits to be written has been."""
        ...

    async def read(self, offset: int, *, bytes_max: int) -> list[memoryview]:
        """Return whole batches from the one holding ``offset`` on; none if there is nothing yet."""
        ...

    async def offset_at(self, time_ms: int) -> tuple[int, int] | None:
        """Return offset and time of the first record of this time or later; None if there is none."""
        ...

    async def newest(self) -> tuple[int, int] | None:
        """Return offset and time of the record with the latest time; None if there is none."""
        ...

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return ``epoch`` and where it ends; (-1, -1) if there is no such epoch."""
        ...


P_co = TypeVar("P_co", bound=Partition, covariant=True)


@dataclass(slots=True)
class TopicOf(Generic[P_co]):
    """A topic of an engine, which has partitions of its own kind."""

    name: str
    # Sixteen random bytes, as Kafka's topic ids.
    id: bytes
    # Counts topics in the order of their making; never used again.
    number: int
    settings: TopicSettings
    partitions: list[P_co] = field(default_factory=list)

    def partition(self, index: int) -> P_co:
        if not 0 <= index < len(self.partitions):
            raise PartitionNotFound(f"topic {self.name!r} has no partition {index}")
        return self.partitions[index]


Topic: TypeAlias = TopicOf[Partition]


class Broker(NamedTuple):
    """A server, as Kafka's clients reach it."""

    number: int
    host: str
    port: int


class Brokers(Protocol):
    """The servers that share the topics. Any of them serves any partition; a group has one of them."""

    @property
    def own_number(self) -> int: ...

    def number_of(self, node: str) -> int: ...

    async def others(self) -> list[Broker]:
        """Return those that are heard, beside this one."""
        ...


class TopicStore(Protocol):
    """All topics of an engine. Changes are made one after the other, each wholly or not at all."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...

    @property
    def partition_count(self) -> int: ...

    @property
    def timings(self) -> Timings: ...

    async def close(self) -> None: ...

    async def refresh(self) -> None:
        """See what other servers have changed about topics until now."""
        ...

    async def look(self, places: Iterable[tuple[str, int]]) -> None:
        """See where these partitions begin and end now. What is not there is left out."""
        ...

    def find(self, name: str) -> Topic:
        """Return a topic, or raise `TopicNotFound`."""
        ...

    def find_by_id(self, topic_id: bytes) -> Topic: ...

    def check_create(self, name: str, settings: TopicSettings) -> None:
        """Raise what `create` would raise, as far as is seen, and do nothing."""
        ...

    async def create(self, name: str, settings: TopicSettings | None = None) -> Topic:
        """Make a topic, durably. A call that is cancelled may still have made it, wholly."""
        ...

    async def create_all(self, wanted: Sequence[tuple[str, TopicSettings]]) -> Sequence[Topic | Exception]:
        """Make topics; return each topic, or what `create` would raise."""
        ...

    async def change(self, name: str, settings: TopicSettings) -> Topic:
        """Give a topic other settings; the number of its partitions must be the same."""
        ...

    async def grow(self, name: str, partitions: int) -> Topic:
        """Give a topic more partitions, so that it has so many."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a topic, durably; its records go a little later."""
        ...

    async def trim(self, name: str, index: int, before_offset: int) -> int:
        """Remove everything before an offset, durably, and return where the partition starts now.

        -1 means the high watermark. Raises `OffsetOutOfRange` beyond it.
        """
        ...

    async def new_producer(self) -> int:
        """Return a producer id that was never given out."""
        ...

    async def new_producers(self, count: int) -> int:
        """Return the first of so many producer ids in a row."""
        ...


class Appended(NamedTuple):
    """A batch that has its place and is not yet durable, or the earlier one that it repeats."""

    base_offset: int
    next_offset: int
    # The time all its records got, or -1 if they kept their own.
    appended_at_ms: int
    is_duplicate: bool
    partition: Partition
    # What will be known of it, where the place it has is known only then: the offsets above count from 0.
    outcome: "asyncio.Future[Appended] | None" = None


class Waiter:
    """A fetch that waits for so many bytes, in any of its partitions."""

    __slots__ = ("_missing_bytes", "_future")

    def __init__(self, missing_bytes: int) -> None:
        self._missing_bytes = missing_bytes
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def feed(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, ends_at: float) -> None:
        """Return when there may be enough, or at the end of the time."""
        timer = asyncio.get_running_loop().call_at(ends_at, self.wake)
        try:
            await self._future
        finally:
            timer.cancel()


def check_topic_name(name: str) -> None:
    """Raise `BadTopicName` if no topic may be called so: Kafka's rule."""
    if not 1 <= len(name) <= TOPIC_NAME_CHARACTERS_MAX:
        limit = f"it has 1 to TOPIC_NAME_CHARACTERS_MAX ({TOPIC_NAME_CHARACTERS_MAX})"
        raise BadTopicName(f"a topic name of {len(name)} characters; {limit}")
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise BadTopicName(f"{name!r} is no topic name; it has A-Z a-z 0-9 . _ - and is neither '.' nor '..'")


def alike(name: str) -> str:
    """Return a name as metrics would have it: dots and underscores are one."""
    return name.replace(".", "_")


def first_at(
    batch: memoryview, time_ms: int, from_offset: int, *, bytes_max: int
) -> tuple[tuple[int, int] | None, int]:
    """Return offset and time of the first record of this time or later, not before an offset, and where to go on.

    A batch says its latest time itself. One whose records do not bear that out, or
    cannot be read, is taken at its word: its first record is the answer.
    """
    header = read_header(batch)
    if header.is_hole or header.max_timestamp_ms < time_ms:
        return None, header.next_offset
    first = max(header.base_offset, from_offset)
    if header.attributes & APPEND_TIME_ATTRIBUTE:
        return (first, header.max_timestamp_ms), header.next_offset
    try:
        for entry in entries(unpacked(batch, header, bytes_max=bytes_max), header.record_count):
            offset = header.base_offset + entry.offset_delta
            at_ms = header.base_timestamp_ms + entry.timestamp_delta_ms
            if offset >= from_offset and at_ms >= time_ms:
                return (offset, at_ms), header.next_offset
    except (BadBatch, BadlyPacked, UnpackedTooLarge, UnsupportedCodec):
        return (first, header.max_timestamp_ms), header.next_offset
    return (None if from_offset > header.base_offset else (first, header.max_timestamp_ms)), header.next_offset
