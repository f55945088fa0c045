"""Random lives of two topics: produced to, trimmed, cleaned and read all at once, and crashed again and again.

The producers are idempotent. Of a batch whose answer did not come they know nothing, so
they send it again when the server is back: it must be there once, and in its place.
"""

import asyncio
import contextlib
import random

import pytest

from penstock.broker.topics import Topics
from penstock.contract.topic_settings import TopicSettings
from penstock.log.interface import OffsetOutOfRange
from penstock.runtime.interface import Runtime
from penstock.streams.interface import TopicNotFound
from tests.simulation.loop import simulate
from tests.simulation.world import Died, Machine
from tests.streams.small import (
    CODECS,
    FOLDER,
    SMALL,
    TINY,
    Pair,
    Sender,
    batch,
    in_folder,
    look_after,
    open_topics,
    read_all,
)
from tests.waiting import elapse

SEEDS = range(12)
LIVES = 5
ALICE = Sender(3)
TOPICS = {
    "events": TINY,
    "latest": TopicSettings(segment_bytes=1_024, is_compacted=True, is_deleted=False, dirty_percent_max=20),
}


class Life:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"streams/{seed}")
        self.machine = Machine(seed)
        self.machine.disk.cold = seed % 3 == 0
        self.history: dict[str, list[Pair]] = {name: [] for name in TOPICS}
        # Sent, with its place in the history, and not yet answered.
        self.unanswered: dict[str, bytes] = {}
        self.trimmed = 0
        self.counts = {"crash": 0, "duplicate": 0, "cleaned": 0}

    async def run(self) -> None:
        for _ in range(LIVES):
            runtime = self.machine.start()
            async with asyncio.TaskGroup() as tasks:
                end = tasks.create_task(self.end_it())
                with contextlib.suppress(Died):
                    await self.machine.run(self.live(runtime))
                end.cancel()
            if self.machine.is_running:
                self.machine.kill()
        await self.machine.run(self.judge_all(self.machine.start()))
        self.machine.kill()
        self.counts["cleaned"] = self.machine.log_events.names().count("streams.cleaned")
        assert "streams.upkeep_failed" not in self.machine.log_events.names()

    async def end_it(self) -> None:
        await elapse(self.dice.random() * 0.3)
        self.counts["crash"] += 1
        if self.dice.random() < 0.5:
            self.machine.kill()
        else:
            self.machine.power_cut()

    async def live(self, runtime: Runtime) -> None:
        topics = await open_topics(runtime, FOLDER, SMALL)
        for name, settings in TOPICS.items():
            try:
                in_folder(topics).find(name)
            except TopicNotFound:
                assert not self.history[name]
                await topics.streams.create(name, settings)
        async with asyncio.TaskGroup() as tasks:
            for name in TOPICS:
                tasks.create_task(self.produce(topics, name))
            tasks.create_task(self.look_after(topics))
            tasks.create_task(self.read(topics))
        await topics.close()

    async def produce(self, topics: Topics, name: str) -> None:
        if name in self.unanswered:
            await self.send(topics, name)
        for _ in range(self.dice.randint(5, 40)):
            pairs = [self.pair(name, each) for each in range(self.dice.randint(1, 5))]
            sequence = len(self.history[name])
            codec = self.dice.choice(sorted(CODECS))
            self.unanswered[name] = batch(*pairs, codec=codec, sender=ALICE, sequence=sequence)
            self.history[name] += pairs
            await self.send(topics, name)
            await elapse(self.dice.random() * 0.01)

    def pair(self, name: str, each: int) -> Pair:
        value = None if self.dice.random() < 0.1 else b"%d " % (len(self.history[name]) + each) + bytes(40)
        return b"%d" % self.dice.randint(0, 8), value

    async def send(self, topics: Topics, name: str) -> None:
        produced = await topics.produce(name, 0, self.unanswered[name])
        del self.unanswered[name]
        self.counts["duplicate"] += produced.is_duplicate
        assert topics.latest(name, 0) == len(self.history[name])

    async def look_after(self, topics: Topics) -> None:
        for _ in range(6):
            await elapse(self.dice.random() * 0.05)
            name = self.dice.choice(sorted(TOPICS))
            if self.dice.random() < 0.3:
                await in_folder(topics).find(name).partitions[0].log.roll()
            if name == "events" and self.dice.random() < 0.3:
                upto = self.dice.randint(0, topics.latest("events", 0))
                self.trimmed = max(self.trimmed, await topics.streams.trim("events", 0, upto))
            await look_after(topics, name)

    async def read(self, topics: Topics) -> None:
        for _ in range(6):
            await elapse(self.dice.random() * 0.05)
            for name in TOPICS:
                await self.judge(topics, name)

    async def judge_all(self, runtime: Runtime) -> None:
        topics = await open_topics(runtime, FOLDER, SMALL)
        for name in TOPICS:
            if name in self.unanswered:
                await self.send(topics, name)
            await self.judge(topics, name)
            assert topics.latest(name, 0) == len(self.history[name])
        assert topics.earliest("events", 0) >= self.trimmed
        await topics.close()

    async def judge(self, topics: Topics, name: str) -> None:
        start, end = topics.earliest(name, 0), topics.latest(name, 0)
        try:
            found = {entry.offset: (entry.key, entry.value) for entry in await read_all(topics, name, start=start)}
        except (AssertionError, OffsetOutOfRange):
            assert topics.earliest(name, 0) > start, "only what was trimmed meanwhile may be gone"
            return
        history = dict(enumerate(self.history[name]))
        assert found.items() <= history.items()
        if name == "latest":
            newest = {key: offset for offset, (key, _) in enumerate(self.history[name][:end])}
            later = {key for offset, (key, _) in history.items() if offset >= end}
            assert {offset for key, offset in newest.items() if key not in later} <= set(found)
        else:
            assert set(range(start, end)) <= set(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_each_record_is_there_once_and_in_its_place(seed: int) -> None:
    life = Life(seed)
    simulate(life.run, seed=seed)


def test_the_lives_are_eventful() -> None:
    totals = {"crash": 0, "duplicate": 0, "cleaned": 0}
    for seed in SEEDS[:4]:
        life = Life(seed)
        simulate(life.run, seed=seed)
        totals = {name: total + life.counts[name] for name, total in totals.items()}
    assert all(totals.values()), totals
