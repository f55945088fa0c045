"""What aiokafka finds in a real server: producing, consuming, and groups whose members come, go and die."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import MessageSizeTooLargeError

from tests.kafka.brokers import Broker
from tests.waiting import eventually

pytestmark = pytest.mark.real_time
WAIT_S = 60.0


@asynccontextmanager
async def producing(broker: Broker, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    made = AIOKafkaProducer(bootstrap_servers=broker.servers, **settings)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def consuming(broker: Broker, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    made = await consumer(broker, *topics, **settings)
    try:
        yield made
    finally:
        await made.stop()


async def consumer(broker: Broker, *topics: str, **settings: Any) -> AIOKafkaConsumer:
    usual = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 200}
    # Longer than a busy machine keeps a member from its heartbeats.
    usual["session_timeout_ms"] = 30_000
    made = AIOKafkaConsumer(*topics, bootstrap_servers=broker.servers, **{**usual, **settings})
    await made.start()
    return made


async def create(broker: Broker, topic: str, partitions: int = 1, *, config: dict[str, str] | None = None) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config or {})])
    finally:
        await admin.close()


async def read(reader: AIOKafkaConsumer, count: int) -> list[Any]:
    async with asyncio.timeout(WAIT_S):
        return [await reader.getone() for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_aiokafka_reads_what_it_wrote_with_every_codec(broker: Broker, topic: str, codec: str | None) -> None:
    async with producing(broker, compression_type=codec, enable_idempotence=True) as made:
        sent = [await made.send(topic, b"%d" % number * 50, key=b"k", headers=[("h", b"v")]) for number in range(50)]
        assert [(await each).offset for each in sent] == list(range(50))
    async with consuming(broker, topic) as reader:
        found = await read(reader, 50)
    assert [each.value for each in found] == [b"%d" % number * 50 for number in range(50)]
    assert (found[0].key, found[0].headers) == (b"k", (("h", b"v"),))


async def test_a_record_that_is_too_large_is_refused_to_aiokafka(broker: Broker, topic: str) -> None:
    await create(broker, topic, config={"max.message.bytes": "2000"})
    async with producing(broker) as made:
        with pytest.raises(MessageSizeTooLargeError):
            await made.send_and_wait(topic, bytes(5_000))
        assert (await made.send_and_wait(topic, bytes(500))).offset == 0


async def test_a_waiting_fetch_is_woken_at_once_by_a_record(broker: Broker, topic: str) -> None:
    await create(broker, topic)
    async with (
        consuming(broker, topic, fetch_max_wait_ms=60_000, request_timeout_ms=120_000) as reader,
        producing(broker) as made,
    ):
        await made.send_and_wait(topic, b"warm")
        await read(reader, 1)
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        waiting = asyncio.gather(reader.getone(), made.send_and_wait(topic, b"now"))
        found, _ = await asyncio.wait_for(waiting, WAIT_S)
        assert found.value == b"now"
        assert loop.time() - began_at < 30, "it slept until the end of its wait"


async def shares(readers: list[AIOKafkaConsumer], partitions: int) -> None:
    """Wait until each partition is read by exactly one member, and each member has its share."""

    def are_shared() -> bool:
        held = [each.assignment() for each in readers]
        whole = sorted(place.partition for each in held for place in each)
        return whole == list(range(partitions)) and all(len(each) >= partitions // len(readers) for each in held)

    await eventually(are_shared, within_s=WAIT_S)


async def test_members_of_a_group_share_partitions_as_they_come_go_and_die(
    broker: Broker, topic: str, group: str
) -> None:
    await create(broker, topic, 6)
    async with AsyncExitStack() as stack:
        readers: list[AIOKafkaConsumer] = []

        async def join() -> None:
            settings = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 3_000}
            readers.append(await consumer(broker, topic, group_id=group, **settings))

        await join()
        await shares(readers, 6)
        await asyncio.gather(join(), join())
        await shares(readers, 6)
        await asyncio.gather(join(), join())
        await shares(readers, 6)
        await readers.pop(0).stop()
        await shares(readers, 6)
        # One dies: its connections go without a word, and its heartbeats with them.
        dead = readers.pop()
        cut(dead)
        await shares(readers, 6)
        for each in readers:
            stack.push_async_callback(each.stop)
        stack.push_async_callback(dead.stop)
        async with producing(broker) as made:
            for number in range(60):
                await made.send(topic, b"%d" % number, partition=number % 6)
            await made.flush()
        found: set[int] = set()
        async with asyncio.timeout(WAIT_S):
            while len(found) < 60:
                for each in readers:
                    batch = await each.getmany(timeout_ms=50)
                    found |= {int(record.value) for records in batch.values() for record in records}


def cut(reader: AIOKafkaConsumer) -> None:
    """Let a member be silent as if its process were gone."""
    coordinator = reader._coordinator
    for name in ("_heartbeat_task", "_coordination_task"):
        task = getattr(coordinator, name, None)
        if task is not None:
            task.cancel()


async def test_commits_of_aiokafka_keep_their_metadata_and_are_gone_on_from(
    broker: Broker, topic: str, group: str
) -> None:
    async with producing(broker) as made:
        for number in range(10):
            await made.send_and_wait(topic, b"%d" % number)
    place = TopicPartition(topic, 0)
    async with consuming(broker, topic, group_id=group) as first:
        await read(first, 3)
        await first.commit({place: (3, "here")})
    async with consuming(broker, topic, group_id=group) as second:
        assert await second.committed(place) == 3
        assert [each.value for each in await read(second, 2)] == [b"3", b"4"]


async def test_a_static_member_that_restarts_in_time_causes_no_rebalance(
    broker: Broker, topic: str, group: str
) -> None:
    await create(broker, topic, 2)
    settings = {"group_id": group, "group_instance_id": "one", "session_timeout_ms": 30_000}
    async with consuming(broker, topic, **settings) as first:
        await shares([first], 2)
        generation = first._coordinator.generation
    async with consuming(broker, topic, **settings) as second:
        await shares([second], 2)
        assert second._coordinator.generation == generation
