"""Topics of the SDK against a real server: what was produced is consumed, resumed, and buried if it must be."""

import asyncio
import time
from typing import Any

import pytest

import penstock
from penstock.client import BadRequest, Client, PenstockError
from penstock.client.topics.consumer import ATTEMPTS_HEADER, ERROR_HEADER, OFFSET_HEADER, TOPIC_HEADER, Record
from penstock.client.topics.topic import Topic
from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import create
from tests.waiting import eventually

pytestmark = pytest.mark.real_time

# A session is longer than a busy machine keeps a member from its heartbeats.
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 100, "fetch_max_wait_ms": 100, "session_timeout_ms": 30_000}


def topic_of(client: Client, broker: Broker, name: str) -> Topic:
    return client.topic(name, kafka=broker.servers)


async def take(topic: Topic, group: str, count: int) -> list[Record]:
    """Consume so many records, each in a block of its own."""
    found: list[Record] = []
    async with asyncio.timeout(60), topic.consume(group=group, **QUICK) as records:
        async for record in records:
            with record:
                found.append(record)
            if len(found) == count:
                break
    return found


async def test_what_is_produced_is_consumed_once_by_a_group(broker: Broker, topic: str, group: str) -> None:
    async with penstock.connect(broker.url) as client:
        events = topic_of(client, broker, topic)
        place = await events.produce({"id": 7}, key="k", headers={"trace": "t"})
        assert (place.partition, place.offset) == (0, 0)
        assert [each.offset for each in await events.produce_many([b"\xff", "text"])] == [1, 2]
        assert (await events.produce(None, key="k")).offset == 3
        with pytest.raises(BadRequest, match="a value or a key"):
            await events.produce(None)
        first, second = await take(events, group, 2)
        assert (first.json(), first.key, first.header("trace"), second.value) == ({"id": 7}, b"k", b"t", b"\xff")
        assert first.timestamp_ms == pytest.approx(time.time() * 1_000, abs=60_000)
        # The next consumer goes on where the first has ended.
        assert [each.value for each in await take(events, group, 2)] == [b"text", None]


async def test_a_record_that_always_fails_is_a_dead_letter_and_the_next_is_consumed(
    broker: Broker, topic: str, group: str
) -> None:
    async with penstock.connect(broker.url) as client:
        events = topic_of(client, broker, topic)
        await events.produce_many(["good", "bad", "last"])
        attempts, done = [], []
        async with asyncio.timeout(60), events.consume(group=group, attempts=2, **QUICK) as records:
            async for record in records:
                with record:
                    attempts.append(record.text)
                    if record.text == "bad":
                        raise ValueError("not this one")
                    done.append(record.text)
                if len(done) == 2:
                    break
        assert (attempts, done) == (["good", "bad", "bad", "last"], ["good", "last"])
        (dead,) = await take(topic_of(client, broker, f"{topic}.dlq"), group, 1)
        assert dead.value == b"bad"
        names = (ERROR_HEADER, TOPIC_HEADER, OFFSET_HEADER, ATTEMPTS_HEADER)
        assert [dead.header(name) for name in names] == [b"not this one", topic.encode(), b"1", b"2"]


async def test_an_error_outside_a_block_ends_the_loop_and_the_record_comes_again(
    broker: Broker, topic: str, group: str
) -> None:
    async with penstock.connect(broker.url) as client:
        events = topic_of(client, broker, topic)
        await events.produce_many(["one", "two"])

        async def read() -> None:
            async with asyncio.timeout(60), events.consume(group=group, **QUICK) as records:
                async for record in records:
                    if record.text == "two":
                        raise ValueError("two")

        with pytest.raises(ValueError, match="two"):
            await read()
        assert [each.text for each in await take(events, group, 1)] == ["two"]


async def test_members_of_a_group_share_its_partitions_and_take_over(broker: Broker, topic: str, group: str) -> None:
    create(broker.servers, topic, 4)
    async with penstock.connect(broker.url) as client:
        events = topic_of(client, broker, topic)
        seen: dict[str, set[int]] = {"ann": set(), "bob": set()}
        values: set[str] = set()

        async def read(name: str) -> None:
            async with events.consume(group=group, **QUICK) as records:
                async for record in records:
                    with record:
                        seen[name].add(record.partition)
                        values.add(record.text)

        ann, bob = (asyncio.create_task(read(name)) for name in ("ann", "bob"))  # noqa: TID251 - They are awaited below.
        number = 0

        async def feed(until_all: set[str]) -> None:
            nonlocal number
            async with asyncio.timeout(60):
                while set().union(*(seen[name] for name in until_all)) != {0, 1, 2, 3} or not all(
                    map(seen.get, until_all)
                ):
                    for partition in range(4):
                        await events.produce(str(number), partition=partition)
                        number += 1

        await feed({"ann", "bob"})
        async with asyncio.timeout(60):
            # The first consumer had all of them until the other one came.
            while seen["ann"] & seen["bob"]:
                seen["ann"].clear()
                seen["bob"].clear()
                await feed({"ann", "bob"})
        bob.cancel()
        await asyncio.wait([bob])
        seen["ann"].clear()
        await feed({"ann"})
        await eventually(lambda: len(values) >= number)
        ann.cancel()
        await asyncio.wait([ann])


def test_a_synchronous_program_produces_and_consumes(broker: Broker, topic: str, group: str) -> None:
    with penstock.connect(broker.url) as client:
        events = client.topic(topic, kafka=broker.servers)
        events.produce("one")
        found = []
        for record in events.consume(group=group, **QUICK):
            with record:
                found.append(record.text)
            break
        assert found == ["one"]


async def test_a_client_that_is_closed_leaves_its_groups(broker: Broker, topic: str, group: str) -> None:
    async with penstock.connect(broker.url) as client:
        events = topic_of(client, broker, topic)
        await events.produce_many(["one", "two"])
        records = events.consume(group=group, **QUICK | {"session_timeout_ms": 120_000})
        with await anext(records):
            pass
    assert [each async for each in records] == []
    async with penstock.connect(broker.url) as client:
        began = time.monotonic()
        assert [each.text for each in await take(topic_of(client, broker, topic), group, 1)] == ["two"]
        # It has not waited for the session of the other one to end.
        assert time.monotonic() - began < 60


async def test_a_server_that_is_not_there_is_an_error_of_ours(broker: Broker, topic: str) -> None:
    async with penstock.connect(broker.url) as client:
        with pytest.raises(PenstockError):
            await client.topic(topic, kafka="127.0.0.1:1").produce("x")
