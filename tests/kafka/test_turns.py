"""Answers with thousands of rows leave others their turn: turns of the event loop are counted, not time."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

import pytest

from penstock.api.kafka.metadata import partition_row
from penstock.api.kafka.request import in_turns, read_in_turns
from penstock.api.kafka.session import _written_in_turns
from penstock.api.kafka.wire.fields import TURN_ELEMENTS
from penstock.api.kafka.wire.frames import Header
from penstock.api.kafka.wire.produce_fetch import reading_fetch, reading_produce
from penstock.api.kafka.wire.schema import Api, reading_request, write_response
from penstock.broker.consumer_groups import open_groups
from penstock.contract.topic_settings import TopicSettings
from penstock.metrics.streams import families_of_streams
from penstock.streams.embedded.offset_store import Offsets
from penstock.streams.interface import Broker, Topic, TopicOf
from tests.simulation.world import Machine
from tests.steps import LINES_MAX, counted
from tests.streams.small import running
from tests.waiting import let_others_run

T = TypeVar("T")
TOPICS = 2_000


async def turns_of(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """Return what comes of some work, and how often others had their turn meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await let_others_run()
            turns += 1

    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count())
        await let_others_run()
        done = await work
        counting.cancel()
    return done, turns


async def test_rows_are_made_a_few_at_a_time() -> None:
    found, turns = await turns_of(in_turns(range(TOPICS), str))
    assert found == [str(number) for number in range(TOPICS)]
    assert turns >= TOPICS // 10


COUNT = 10_000
MANY, ONE, TOPIC = COUNT.to_bytes(4, "big"), b"\0\0\0\1", b"\0\1t"


@pytest.mark.parametrize(
    "reading",
    [
        lambda: reading_request(Api.METADATA, 4, memoryview(MANY + TOPIC * COUNT + b"\1"), 0),
        lambda: reading_request(Api.OFFSET_FETCH, 5, memoryview(TOPIC + ONE + TOPIC + MANY + bytes(4 * COUNT)), 0),
        lambda: reading_produce(3, memoryview(b"\xff\xff" + bytes(6) + ONE + TOPIC + MANY + bytes(8 * COUNT)), 0),
        lambda: reading_fetch(4, memoryview(bytes(17) + ONE + TOPIC + MANY + bytes(16 * COUNT)), 0),
    ],
    ids=["structures", "numbers", "produce", "fetch"],
)
async def test_a_request_with_thousands_of_elements_is_read_in_turns(
    reading: Callable[[], Generator[None, None, object]],
) -> None:
    assert sum(1 for _ in reading()) == COUNT // TURN_ELEMENTS
    with counted() as steps:
        await read_in_turns(reading())
    assert steps.longest < LINES_MAX < steps.total, steps.culprit


async def test_an_answer_about_all_topics_is_written_a_piece_at_a_time() -> None:
    one: Topic = TopicOf("topic", bytes(16), 1, TopicSettings())
    row = {
        "error_code": 0,
        "topic_id": bytes(16),
        "is_internal": False,
        "partitions": [partition_row(one, 0, [Broker(0, "here", 1)])],
    }
    topics = [{**row, "name": f"topic-{number}"} for number in range(TOPICS)]
    values = {"throttle_time": 0, "brokers": [], "cluster_id": "c", "controller_id": 0, "topics": topics}
    header = Header(Api.METADATA, 12, 1, "client", 0)
    written, turns = await turns_of(_written_in_turns(header, values))
    assert written == write_response(Api.METADATA, 12, values)
    assert turns >= TOPICS // 200


async def test_a_scrape_looks_at_topics_a_few_at_a_time(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create_all([(f"t-{number}", TopicSettings()) for number in range(300)])
        assert machine.runtime is not None
        async with open_groups(
            machine.runtime, await Offsets.open(machine.runtime, "streams/groups"), topics
        ) as groups:
            families, turns = await turns_of(families_of_streams(topics, groups))
            assert sum(len(family.samples) for family in families) == 7 * 300
            assert turns >= 300 // 50
