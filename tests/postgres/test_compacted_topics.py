"""Compaction of topics in PostgreSQL where several servers, readers, producers and an end come in between."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg
import pytest

from penstock.broker.topics import Topics
from penstock.contract.topic_settings import TopicSettings
from penstock.log.record import header as read_header
from penstock.streams.postgres.compaction import Cleaning, CleaningDone
from penstock.streams.postgres.topic_store import PostgresTopics
from tests.conformance.topics import InPostgres
from tests.postgres.schemas import empty_schema
from tests.simulation.clock import EPOCH_MS
from tests.streams.small import HOUR_MS, Pair, Read, batch, read_all
from tests.waiting import eventually

pytestmark = pytest.mark.real_time

_SECONDS_MAX = 60.0
COMPACTED = TopicSettings(is_compacted=True, is_deleted=False, dirty_percent_max=0, tombstone_ms=HOUR_MS)
# Several times what is rewritten in one transaction.
_BATCHES, _KEYS, _VALUE_BYTES = 60, 50, 2_000


@asynccontextmanager
async def two_servers() -> AsyncIterator[InPostgres]:
    stage = InPostgres(empty_schema())
    await stage.open()
    try:
        await stage.topics.streams.create("events", COMPACTED)
        await stage.beside.refresh()
        yield stage
    finally:
        await stage.close()


async def filled(topics: Topics) -> list[Pair]:
    """Send some MiB; each key is in many batches."""
    dice, history = random.Random(1), []
    for _ in range(_BATCHES):
        pairs: list[Pair] = [(b"%d" % dice.randrange(_KEYS), dice.randbytes(_VALUE_BYTES)) for _ in range(50)]
        history += pairs
        await topics.produce("events", 0, batch(*pairs))
    return history


def newest(history: list[Pair]) -> list[Read]:
    last = {key: (offset, value) for offset, (key, value) in enumerate(history)}
    return sorted((Read(at, key, value, EPOCH_MS) for key, (at, value) in last.items()), key=lambda each: each.offset)


async def everything(topics: Topics) -> list[Read]:
    await topics.look([("events", 0)])
    return await read_all(topics)


async def cleaned(topics: Topics, *, keys_max: int = 1_000, now_ms: int = EPOCH_MS) -> CleaningDone | None:
    streams = topics.streams
    assert isinstance(streams, PostgresTopics)
    return await Cleaning(streams._database, streams.find("events").partitions[0], now_ms, keys_max=keys_max).run()


def stored(stage: InPostgres) -> tuple[int, int, int]:
    """Return how large the partition says it is, how large its batches are, and how often some were rewritten."""
    text = (
        "SELECT size_bytes, (SELECT sum(octet_length(bytes)) FROM penstock.frame)::bigint, rewrites "
        "FROM penstock.topic_partition"
    ).replace("penstock.", f"{stage._settings.schema}.")
    with psycopg.connect(stage._settings.url) as connection:
        found = connection.execute(text.encode()).fetchone()
    assert found is not None
    return found


async def test_a_cleaning_says_what_it_saved_and_leaves_the_last_of_each_key() -> None:
    async with two_servers() as stage:
        history = await filled(stage.topics)
        done = await cleaned(stage.topics)
        assert await everything(stage.beside) == newest(history)
        size_bytes, batch_bytes, rewrites = stored(stage)
        assert done is not None
        assert done.bytes_before > 10 * done.bytes_after
        assert size_bytes == batch_bytes == done.bytes_after
        assert rewrites > 1
        # Nothing is new.
        assert await cleaned(stage.topics) is None


async def test_of_two_servers_that_clean_at_once_the_slower_one_stops() -> None:
    async with two_servers() as stage:
        history = await filled(stage.topics)
        done = await asyncio.gather(*(cleaned(topics) for topics in (stage.topics, stage.beside) for _ in range(2)))
        while await cleaned(stage.beside) is not None:
            pass
        assert [each for each in done if each is None]
        assert await everything(stage.topics) == await everything(stage.beside) == newest(history)
        size_bytes, batch_bytes, _ = stored(stage)
        assert size_bytes == batch_bytes


async def test_readers_and_producers_go_on_while_a_partition_is_cleaned() -> None:
    async with two_servers() as stage:
        history = await filled(stage.topics)
        cleaning = asyncio.create_task(cleaned(stage.topics))  # noqa: TID251 - awaited below.
        while not cleaning.done():
            history.append((b"%d" % (len(history) % _KEYS), b"later"))
            await stage.beside.produce("events", 0, batch(history[-1]))
            known = len(history)
            found = await everything(stage.beside)
            assert [each.offset for each in found] == sorted({each.offset for each in found})
            assert {each.key: each.value for each in found} == dict(history[:known])
            for each in found:
                assert (each.key, each.value) == history[each.offset]
        assert await cleaning is not None
        await cleaned(stage.beside)
        assert await everything(stage.topics) == newest(history)


async def test_a_cleaning_that_is_cut_short_takes_nothing_back_and_is_done_again() -> None:
    async with two_servers() as stage:
        history = await filled(stage.topics)
        cleaning = asyncio.create_task(cleaned(stage.topics))  # noqa: TID251 - awaited below.
        await eventually(lambda: stored(stage)[2] > 0, within_s=_SECONDS_MAX)
        cleaning.cancel()
        await asyncio.wait([cleaning])
        found = await everything(stage.beside)
        assert {each.key: each.value for each in found} == dict(history)
        await cleaned(stage.beside)
        assert await everything(stage.beside) == newest(history)


async def test_more_keys_than_memory_may_hold_are_cleaned_in_several_goes_in_tables() -> None:
    async with two_servers() as stage:
        history: list[Pair] = [(b"%d" % (number % 30), b"%d" % number) for number in range(120)]
        for at in range(0, 120, 4):
            await stage.topics.produce("events", 0, batch(*history[at : at + 4]))
        goes = 0
        while await cleaned(stage.topics, keys_max=10) is not None:
            goes += 1
        assert goes == 10
        assert await everything(stage.beside) == newest(history)


async def test_what_is_gone_between_two_records_is_one_hole_also_after_another_cleaning() -> None:
    async with two_servers() as stage:
        for turn in range(3):
            for _ in range(10):
                await stage.topics.produce("events", 0, batch((b"k", b"%d" % turn)))
            await cleaned(stage.topics)
        await stage.beside.look([("events", 0)])
        batches = await stage.beside.streams.find("events").partitions[0].read(0, bytes_max=10_000)
        heads = [read_header(each) for each in batches]
        assert [(each.base_offset, each.next_offset, each.is_hole) for each in heads] == [
            (0, 29, True),
            (29, 30, False),
        ]


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_partition_that_goes_or_is_trimmed_while_it_is_cleaned_stays_gone(*, is_deleted: bool) -> None:
    async with two_servers() as stage:
        history = await filled(stage.topics)
        cleaning = asyncio.create_task(cleaned(stage.topics))  # noqa: TID251 - awaited below.
        await eventually(lambda: stored(stage)[2] > 0, within_s=_SECONDS_MAX)
        if is_deleted:
            await stage.beside.streams.delete("events")
            await stage.beside.streams.create("events", replace(COMPACTED, partitions=1))
        else:
            await stage.beside.streams.trim("events", 0, -1)
        await cleaning
        await stage.look_after()
        await stage.topics.refresh()
        assert await everything(stage.topics) == []
        end = 0 if is_deleted else len(history)
        assert (await stage.topics.produce("events", 0, batch((b"k", b"v")))).base_offset == end
        await stage.look_after()
        assert [each.offset for each in await everything(stage.beside)] == [end]
