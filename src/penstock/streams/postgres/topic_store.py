"""All topics of a database, as one of its servers sees them: made, changed, deleted, and looked after.

Changes are made one after the other, whichever server makes them: each locks the one row of `topic_state`, and gives
the topics that it changes the next version. A server learns of changes by asking for what has a later version than it
has seen.

One server at a time drops what is too old, too much, trimmed, or of a topic that is gone, and compacts.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import fields, replace
from typing import Any, TypeAlias

import psycopg

from penstock.contract.limits import PARTITIONS_MAX, PRODUCER_MS
from penstock.contract.topic_settings import BadTopicSettings, TopicSettings
from penstock.log.interface import OffsetOutOfRange
from penstock.runtime.interface import Dice, Timings
from penstock.store.errors import StoreForbids, StoreUnreachable
from penstock.store.postgres.store import PostgresStore
from penstock.streams.interface import (
    BadTopicName,
    PartitionsCannotShrink,
    TooManyPartitions,
    Topic,
    TopicExists,
    TopicNotFound,
    TopicOf,
    alike,
    check_topic_name,
)
from penstock.streams.postgres.appender import Appender
from penstock.streams.postgres.compaction import Cleaning
from penstock.streams.postgres.partition import FrameCache, Shelf, TablePartition
from penstock.telemetry import STREAMS_CLEANED, STREAMS_UPKEEP_FAILED

# How often what is too old is looked for, and how many batches go in one transaction.
UPKEEP_S = 30.0
_DROPPED_AT_ONCE = 500
_PRODUCER_IDS = 1_000

TableTopic: TypeAlias = TopicOf[TablePartition]


class PostgresTopics:
    """Satisfies `streams.interface.TopicStore`; see there for what the verbs promise."""

    def __init__(self, store: PostgresStore, dice: Dice, timings: Timings, *, upkeep_s: float) -> None:
        self._store = store
        self._database = store.database
        self._dice = dice
        self._upkeep_s = upkeep_s
        self._appender = Appender(store.database, store.now_ms)
        self._shelf = Shelf(store.database, self._appender, FrameCache(), self._tell, self.refresh)
        self.timings = timings
        self.topics: dict[str, TableTopic] = {}
        self._by_id: dict[bytes, TableTopic] = {}
        self._by_number: dict[int, TableTopic] = {}
        self._alike: dict[str, str] = {}
        self.partition_count = 0
        self._version = 0
        # What other servers have changed is learned by one at a time.
        self._learning = asyncio.Lock()
        self._upkeep: asyncio.Task[None] | None = None
        self._next_producer = self._producers_upto = 0

    @classmethod
    async def open(
        cls, store: PostgresStore, dice: Dice, timings: Timings, *, upkeep_s: float = UPKEEP_S
    ) -> "PostgresTopics":
        """See what topics there are in the database of a store of queues, and share its connections."""
        topics = cls(store, dice, timings, upkeep_s=upkeep_s)
        await topics.refresh()
        store.watch_topics(topics._hear)
        topics._appender.start()
        topics._upkeep = asyncio.create_task(topics._look_after_all())  # noqa: TID251 - close awaits it.
        return topics

    async def close(self) -> None:
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.wait([self._upkeep])
        await self._appender.close()
        for partition in self._partitions():
            partition.wake()

    def _partitions(self) -> Iterator[TablePartition]:
        return (partition for topic in self.topics.values() for partition in topic.partitions)

    # What other servers do.

    def _tell(self, topic: int, partition: int) -> None:
        self._store.tell_of_topic(f"{topic}-{partition}")

    def _hear(self, key: str | None) -> None:
        if key is None:
            for partition in self._partitions():
                partition.wake()
            return
        number, _, index = key.partition("-")
        with suppress(ValueError, KeyError, IndexError):
            self._by_number[int(number)].partitions[int(index)].wake()

    async def refresh(self) -> None:
        ((version,),) = await self._database.ask("topic_version")
        if version <= self._version:
            return
        async with self._learning:
            for row in await self._database.ask("topics_since", version=self._version):
                self._learn(*row)
            # All up to there were visible; a change that changed nothing left no row.
            self._version = max(self._version, version)

    def _learn(self, version: int, number: int, topic_id: bytes, name: str, written: str, is_deleted: bool) -> None:
        self._version = max(self._version, version)
        topic = self._by_number.get(number)
        if is_deleted:
            if topic is not None:
                self._forget(topic)
            return
        settings = TopicSettings.read(json.loads(written))
        if topic is None:
            topic = TopicOf(name, bytes(topic_id), number, settings)
            self.topics[name] = self._by_id[topic.id] = self._by_number[number] = topic
            self._alike[alike(name)] = name
        topic.settings = settings
        for index in range(len(topic.partitions), settings.partitions):
            topic.partitions.append(TablePartition(self._shelf, number, index, settings))
            self.partition_count += 1
        for partition in topic.partitions:
            partition.settings = settings

    def _forget(self, topic: TableTopic) -> None:
        del self._by_number[topic.number], self._by_id[topic.id]
        if self.topics.get(topic.name) is topic:
            del self.topics[topic.name], self._alike[alike(topic.name)]
        self.partition_count -= len(topic.partitions)
        for partition in topic.partitions:
            partition.is_deleted = True
            partition.wake()

    async def look(self, places: Iterable[tuple[str, int]]) -> None:
        found = [partition for place in places if (partition := self._place(*place)) is not None]
        if not found:
            return
        # What this server could not confirm is there already, and must not be read before it is confirmed.
        self._database.gate.check()
        rows = await self._database.ask(
            "look_partitions", topics=[each.topic for each in found], partitions=[each.index for each in found]
        )
        seen = {(topic, index): ends for topic, index, *ends in rows}
        for partition in found:
            ends = seen.get((partition.topic, partition.index))
            if ends is None:
                await self.refresh()
            else:
                partition.learn(start=ends[0], confirmed=ends[1], size_bytes=ends[2], rewrites=ends[3])

    def _place(self, name: str, index: int) -> TablePartition | None:
        topic = self.topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    # Finding and changing.

    def find(self, name: str) -> TableTopic:
        topic = self.topics.get(name)
        if topic is None:
            raise TopicNotFound(f"there is no topic {name!r}")
        return topic

    def find_by_id(self, topic_id: bytes) -> TableTopic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise TopicNotFound(f"there is no topic of id {topic_id.hex()}")
        return topic

    def check_create(self, name: str, settings: TopicSettings) -> None:
        check_topic_name(name)
        if name in self.topics:
            raise TopicExists(f"there is a topic {name!r}")
        if alike(name) in self._alike:
            raise BadTopicName(f"there is a topic that differs from {name!r} only in dots and underscores")
        self._check_count(settings.partitions)

    def _check_count(self, more: int) -> None:
        if self.partition_count + more > PARTITIONS_MAX:
            raise TooManyPartitions(f"there are {self.partition_count} partitions; PARTITIONS_MAX is {PARTITIONS_MAX}")

    async def create(self, name: str, settings: TopicSettings | None = None) -> Topic:
        (made,) = await self.create_all([(name, settings or TopicSettings())])
        if isinstance(made, Exception):
            raise made
        return made

    async def create_all(self, wanted: Sequence[tuple[str, TopicSettings]]) -> Sequence[Topic | Exception]:
        made: list[bytes | Exception] = []
        taken: set[str] = set()
        count = 0
        async with self._changing() as change:
            for name, settings in wanted:
                refusal = self._refusal(name, settings, taken, count)
                if refusal is not None:
                    made.append(refusal)
                    continue
                taken.add(alike(name))
                count += settings.partitions
                topic_id = _new_id(self._dice)
                made.append(topic_id)
                await change.create(topic_id, name, settings)
        return [each if isinstance(each, Exception) else self.find_by_id(each) for each in made]

    def _refusal(self, name: str, settings: TopicSettings, taken: set[str], count: int) -> Exception | None:
        try:
            self.check_create(name, settings)
            self._check_count(count + settings.partitions)
        except (ValueError, TopicExists, TooManyPartitions) as error:
            return error
        return TopicExists(f"the topic {name!r} is there twice") if alike(name) in taken else None

    async def change(self, name: str, settings: TopicSettings) -> Topic:
        async with self._changing() as change:
            topic = self.find(name)
            if settings.partitions != topic.settings.partitions:
                raise BadTopicSettings("partitions", "is changed by adding some")
            if settings != topic.settings:
                await change.write(topic.number, settings)
        return self.find(name)

    async def grow(self, name: str, partitions: int) -> Topic:
        async with self._changing() as change:
            topic = self.find(name)
            before = topic.settings.partitions
            if partitions <= before:
                raise PartitionsCannotShrink(f"topic {name!r} has {before} partitions; {partitions} are not more")
            self._check_count(partitions - before)
            await change.write(topic.number, replace(topic.settings, partitions=partitions))
            await change.add_partitions(topic.number, range(before, partitions))
        return self.find(name)

    async def delete(self, name: str) -> None:
        async with self._changing() as change:
            await change.delete(self.find(name).number)

    async def trim(self, name: str, index: int, before_offset: int) -> int:
        await self.look([(name, index)])
        partition = self.find(name).partition(index)
        upto = partition.high_watermark if before_offset == -1 else before_offset
        if not 0 <= upto <= partition.high_watermark:
            raise OffsetOutOfRange(f"there is no offset {upto} to trim to; the end is {partition.high_watermark}")
        (start,) = await self._database.call("trim_partition", partition.topic, index, upto)
        partition.start_offset = max(partition.start_offset, start)
        return partition.start_offset

    async def new_producer(self) -> int:
        if self._next_producer == self._producers_upto:
            first = await self.new_producers(_PRODUCER_IDS)
            self._next_producer, self._producers_upto = first, first + _PRODUCER_IDS
        self._next_producer += 1
        return self._next_producer - 1

    async def new_producers(self, count: int) -> int:
        (first,) = await self._database.call("new_producers", count)
        return int(first)

    @asynccontextmanager
    async def _changing(self) -> "AsyncIterator[_Change]":
        """Change topics while no other server does, knowing what all others have changed before."""
        async with self._database.transaction() as connection:
            change = await _Change.begin(connection, self._database.settings.schema)
            # In this transaction, so that what it sees is what there is until it ends.
            async with self._learning:
                for row in await change.rows_since(self._version):
                    self._learn(*row)
            yield change
        await self.refresh()

    # Looking after.

    async def _look_after_all(self) -> None:
        while True:
            await asyncio.sleep(self._upkeep_s)
            try:
                await self.refresh()
                if self._store.leads:
                    await self.look_after()
            except (StoreUnreachable, StoreForbids):
                # It is tried again when the database answers.
                pass
            except psycopg.Error as error:
                self._database.gate.log_event(STREAMS_UPKEEP_FAILED, error=str(error))

    async def look_after(self) -> None:
        """Drop what is too old, too much, trimmed, or of no topic any more; confirm what servers left; compact."""
        await self.look((topic.name, index) for topic in self.topics.values() for index in range(len(topic.partitions)))
        for topic in list(self.topics.values()):
            for partition in topic.partitions:
                if partition.size_bytes:
                    await self._age(topic.settings, partition)
        for number, index in await self._database.ask("partitions_gone"):
            await self._drop(number, index, before=2**62)
            await self._database.call("drop_partition", number, index)
        left = await self._database.ask("partitions_unconfirmed")
        if left:
            await self._database.call_ungated("confirm_frames", [each for each, _ in left], [each for _, each in left])
        await self._database.call("forget_producers", self._store.now_ms() - PRODUCER_MS)
        # Last, as it may take long.
        for topic in [each for each in self.topics.values() if each.settings.is_compacted]:
            await self._clean(topic)

    async def _clean(self, topic: TableTopic) -> None:
        for partition in topic.partitions:
            done = await Cleaning(self._database, partition, self._store.now_ms()).run()
            if done is not None:
                self._database.gate.log_event(
                    STREAMS_CLEANED, topic=topic.name, partition=partition.index, **done._asdict()
                )

    async def _age(self, settings: TopicSettings, partition: TablePartition) -> None:
        before_ms = bytes_max = None
        if settings.is_deleted:
            bytes_max = settings.retention_bytes
            before_ms = None if settings.retention_ms is None else self._store.now_ms() - settings.retention_ms
        (start,) = await self._database.call("age_partition", partition.topic, partition.index, before_ms, bytes_max)
        if start is not None and start > partition.dropped_offset:
            partition.start_offset = max(partition.start_offset, start)
            await self._drop(partition.topic, partition.index, before=start)
            partition.dropped_offset = start

    async def _drop(self, topic: int, index: int, *, before: int) -> None:
        count = _DROPPED_AT_ONCE
        while count == _DROPPED_AT_ONCE:
            (count,) = await self._database.call("drop_frames", topic, index, before, _DROPPED_AT_ONCE)


class _Change:
    """A change of topics, in a transaction that no other change runs beside."""

    def __init__(self, connection: Any, schema: str, version: int, next_number: int) -> None:
        self._connection = connection
        self._schema = schema
        self._version = version
        self._next_number = next_number

    @classmethod
    async def begin(cls, connection: Any, schema: str) -> "_Change":
        text = f"UPDATE {schema}.topic_state SET version = version + 1 RETURNING version, next_number"
        version, number = await (await connection.execute(text.encode())).fetchone()
        return cls(connection, schema, version, number)

    async def rows_since(self, version: int) -> list[Any]:
        text = f"SELECT version, number, id, name, settings, is_deleted FROM {self._schema}.topic WHERE version > %s"
        found = await self._connection.execute(f"{text} ORDER BY version, number".encode(), (version,))
        return list(await found.fetchall())

    async def _run(self, text: str, *values: Any) -> None:
        await self._connection.execute(text.replace("penstock.", f"{self._schema}.").encode(), values)

    async def create(self, topic_id: bytes, name: str, settings: TopicSettings) -> None:
        number, self._next_number = self._next_number, self._next_number + 1
        await self._run("UPDATE penstock.topic_state SET next_number = %s", self._next_number)
        await self._run(
            "INSERT INTO penstock.topic (number, id, name, alike, settings, version) VALUES (%s, %s, %s, %s, %s, %s)",
            number, topic_id, name, alike(name), _written(settings), self._version,
        )  # fmt: skip
        await self.add_partitions(number, range(settings.partitions))

    async def add_partitions(self, number: int, indexes: range) -> None:
        text = "INSERT INTO penstock.topic_partition (topic, partition) SELECT %s, generate_series(%s::integer, %s)"
        await self._run(text, number, indexes[0], indexes[-1])

    async def write(self, number: int, settings: TopicSettings) -> None:
        text = "UPDATE penstock.topic SET settings = %s, version = %s WHERE number = %s"
        await self._run(text, _written(settings), self._version, number)

    async def delete(self, number: int) -> None:
        text = "UPDATE penstock.topic SET is_deleted = true, version = %s WHERE number = %s"
        await self._run(text, self._version, number)
        # Nothing is appended any more, and its records go later: those of a large topic are many.
        await self._run("DELETE FROM penstock.topic_partition WHERE topic = %s", number)
        await self._run("DELETE FROM penstock.committed_offset WHERE topic = %s", number)


def _written(settings: TopicSettings) -> str:
    return json.dumps({each.name: getattr(settings, each.name) for each in fields(settings)})


def _new_id(dice: Dice) -> bytes:
    """Sixteen random bytes in the form of a random UUID (RFC 9562, version 4): never all zero, which means none."""
    drawn = bytearray(((dice.token() << 64 | dice.token()) & (2**128 - 1)).to_bytes(16, "big"))
    drawn[6] = drawn[6] & 0x0F | 0x40
    drawn[8] = drawn[8] & 0x3F | 0x80
    return bytes(drawn)
