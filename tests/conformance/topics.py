"""Every implementation of `streams.interface.TopicStore`, on a stage with the broker's verbs in front of it.

    @every_engine
    async def test_a_sentence_of_the_manual(stage: TopicStage) -> None:
        await stage.topics.produce("events", 0, values(b"a"))

The stage has one topic, `events`, with one partition and default settings. A story uses nothing but the interface and
the stage. `beside` is another server of the same topics, where an engine may have several; else the same one.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import pytest

from penstock.broker.topics import FetchOne, Topics
from penstock.runtime.memory import memory_runtime
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.store import PostgresStore
from penstock.streams.postgres.topic_store import PostgresTopics
from tests.postgres.schemas import empty_schema, until_alone
from tests.simulation.clock import SimClock, SimDice
from tests.simulation.loop import simulate
from tests.simulation.world import Machine
from tests.streams.small import FOLDER, SMALL, Read, in_folder, look_after, open_topics, records_of

NEVER_S = 1e9


class TopicStage(Protocol):
    @property
    def topics(self) -> Topics:
        """The topics as they are now; others after `reopen` and `crash`."""
        ...

    @property
    def beside(self) -> Topics: ...

    def advance(self, count_ms: int) -> None:
        """Let time pass for what is too old."""
        ...

    async def look_after(self) -> None:
        """Drop what is too old or too much, as happens from time to time."""
        ...

    async def reopen(self) -> None: ...

    async def crash(self) -> None: ...


Story = Callable[[TopicStage], Coroutine[Any, Any, None]]


class OnSimulatedDisk:
    topics: Topics

    def __init__(self) -> None:
        self._machine = Machine()

    @property
    def beside(self) -> Topics:
        return self.topics

    async def open(self) -> None:
        self.topics = await self._machine.run(open_topics(self._machine.start(), FOLDER, SMALL))

    async def close(self) -> None:
        await self.topics.close()

    def advance(self, count_ms: int) -> None:
        self._machine.clock.advance_ms(count_ms)

    async def look_after(self) -> None:
        for topic in list(in_folder(self.topics).topics.values()):
            for index in range(len(topic.partitions)):
                await look_after(self.topics, topic.name, index)

    async def reopen(self) -> None:
        await self.topics.close()
        self._machine.kill()
        await self.open()

    async def crash(self) -> None:
        self._machine.power_cut()
        await self.open()


class InPostgres:
    topics: Topics
    beside: Topics

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._clock, self._dice = SimClock(), SimDice()
        self._stores: list[PostgresStore] = []

    async def open(self) -> None:
        self.topics, self.beside = await self._served(), await self._served()

    async def _served(self) -> Topics:
        store = await PostgresStore.open(self._settings, clock=self._clock, dice=self._dice, may_migrate=False)
        self._stores.append(store)
        runtime = memory_runtime(self._clock)
        return Topics(runtime, await PostgresTopics.open(store, self._dice, runtime.timings, upkeep_s=NEVER_S))

    async def close(self) -> None:
        for topics in (self.topics, self.beside):
            await topics.close()
        for store in self._stores:
            await store.close()
        self._stores.clear()

    def advance(self, count_ms: int) -> None:
        self._clock.advance_ms(count_ms)

    async def look_after(self) -> None:
        assert isinstance(self.topics.streams, PostgresTopics)
        await self.topics.streams.look_after()

    async def reopen(self) -> None:
        await self.close()
        await until_alone(self._settings)
        await self.open()

    async def crash(self) -> None:
        """Go on without a word to the database; what was asked for and not answered yet is still answered."""
        killed, topics = list(self._stores), (self.topics, self.beside)
        self._stores.clear()
        await self.open()
        for each in topics:
            await each.close()
        for store in killed:
            await store.close()


async def play(story: Story, stage: OnSimulatedDisk | InPostgres) -> None:
    await stage.open()
    try:
        await stage.topics.streams.create("events")
        await stage.beside.refresh()
        await story(stage)
    finally:
        await stage.close()


def _on_simulated_disk(story: Story) -> None:
    simulate(lambda: play(story, OnSimulatedDisk()), seed=0)


def _in_postgres(story: Story) -> None:
    settings = empty_schema()
    asyncio.run(play(story, InPostgres(settings)))


ENGINES: dict[str, Callable[[Story], None]] = {"embedded": _on_simulated_disk, "postgres": _in_postgres}


def every_engine(story: Story) -> Callable[[Callable[[Story], None]], None]:
    """Make a test of a story for every engine."""

    @pytest.mark.parametrize("run", ENGINES.values(), ids=ENGINES.keys())
    def test(run: Callable[[Story], None]) -> None:
        run(story)

    test.__name__ = test.__qualname__ = story.__name__  # Not functools.wraps: see `every_store`.
    test.__doc__ = story.__doc__
    return test


async def read(topics: Topics, start: int = 0, *, topic: str = "events", partition: int = 0) -> list[Read]:
    """Return all records from an offset on, as a consumer sees them."""
    found: list[Read] = []
    while True:
        (answer,) = await topics.fetch([FetchOne(topic, partition, start, 300)], bytes_max=300)
        if answer.error is not None:
            raise answer.error
        if not answer.batches:
            return found
        found += (each for each in records_of(answer.batches) if each.offset >= start)
        start = found[-1].offset + 1


async def bodies(topics: Topics, start: int = 0) -> list[bytes | None]:
    return [each.value for each in await read(topics, start)]
