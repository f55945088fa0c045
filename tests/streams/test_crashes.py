"""A crash at each step of a short life of topics leaves what was told, and nothing half done.

The story is always the same. It is told once for each operation of the disk, and ends
there: the process is killed, or the power is cut and all that was not synced is lost.
"""

from dataclasses import replace

import pytest

from penstock.broker.topics import Topics
from penstock.contract.topic_settings import TopicSettings
from penstock.runtime.interface import Runtime
from penstock.streams.interface import TopicNotFound
from tests.simulation.loop import simulate
from tests.simulation.world import Died, Machine
from tests.streams.small import (
    FOLDER,
    HOUR_MS,
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

COMPACTED = TopicSettings(segment_bytes=1_024, is_compacted=True, is_deleted=False, dirty_percent_max=1)
ALICE = Sender(5)
# Each step is told in a few; those between are met with other seeds by the simulation of the log itself.
STRIDE = 3


class Story:
    def __init__(self, step: int | None, seed: int = 0) -> None:
        self.machine = Machine(seed)
        self.machine.disk.crash_after = step
        # What was begun, and what was told.
        self.begun: dict[str, list[Pair]] = {}
        self.told: dict[str, int] = {}
        self.trimmed: dict[str, int] = {}
        self.deleting: set[str] = set()
        self.deleted: set[str] = set()
        self.producers: list[int] = []

    async def tell(self, runtime: Runtime) -> None:
        topics = await open_topics(runtime, FOLDER, SMALL)
        await topics.streams.create("events", TINY)
        self.told["events"] = 0
        for number in range(12):
            await self.produce(topics, "events", (b"k", b"%d" % number + bytes(60)))
        await topics.streams.create("passing", TINY)
        self.told["passing"] = 0
        await self.produce(topics, "passing", (b"k", b"v"))
        await topics.streams.create("latest", COMPACTED)
        self.told["latest"] = 0
        for number in range(16):
            await self.produce(topics, "latest", (b"%d" % (number % 3), b"%d" % number + bytes(60)))
        await look_after(topics, "latest")
        await topics.streams.create_all([(f"many-{number}", TINY) for number in range(3)])
        self.told |= {f"many-{number}": 0 for number in range(3)}
        self.deleting.add("passing")
        await topics.streams.delete("passing")
        self.deleted.add("passing")
        await topics.streams.grow("events", 2)
        await topics.streams.trim("events", 0, 9)
        self.trimmed["events"] = 9
        await look_after(topics)
        self.producers.append(await topics.streams.new_producer())
        for number in range(16, 26):
            await self.produce(topics, "latest", (b"%d" % (number % 3), b"%d" % number + bytes(60)))
        await look_after(topics, "latest")
        await topics.streams.change("events", replace(TINY, partitions=2, message_bytes_max=5_000))
        await topics.close()

    async def produce(self, topics: Topics, topic: str, pair: Pair) -> None:
        history = self.begun.setdefault(topic, [])
        history.append(pair)
        sent = batch(pair, sender=ALICE, sequence=len(history) - 1)
        produced = await topics.produce(topic, 0, sent)
        assert produced.base_offset == len(history) - 1
        self.told[topic] = len(history)

    # Afterwards.

    async def look(self, runtime: Runtime) -> None:
        topics = await open_topics(runtime, FOLDER, SMALL)
        known = {topic.name for topic in topics.list()}
        assert len({name for name in known if name.startswith("many")}) in (0, 3), "one write makes all of them"
        assert set(self.told) - self.deleting <= known
        assert not known & self.deleted
        for name in known:
            await self.judge(topics, name)
        folders = self.machine.disk.names(f"{FOLDER}/partitions")
        there = sum(len(topic.partitions) for topic in topics.list())
        assert len(folders) == there, "nothing half made or half deleted is left"
        producer = await topics.streams.new_producer()
        assert producer not in self.producers
        self.producers.append(producer)
        await self.go_on(topics, known)
        await topics.close()

    async def judge(self, topics: Topics, name: str) -> None:
        history = self.begun.get(name, [])
        end = topics.latest(name, 0)
        assert self.told.get(name, 0) <= end <= len(history), f"{name} ends at {end}"
        del history[end:]
        start = topics.earliest(name, 0)
        assert start >= self.trimmed.get(name, 0)
        found = {entry.offset: (entry.key, entry.value) for entry in await read_all(topics, name)}
        assert found.items() <= dict(enumerate(history)).items()
        if name == "latest":
            newest = {key: offset for offset, (key, _) in enumerate(history)}
            assert set(newest.values()) <= set(found)
        else:
            assert list(found) == list(range(start, end))

    async def go_on(self, topics: Topics, known: set[str]) -> None:
        """The producer sends its last batch again, and then the next."""
        for name in known - {"passing"}:
            history = self.begun.setdefault(name, [])
            if history:
                again = batch(history[-1], sender=ALICE, sequence=len(history) - 1)
                repeated = await topics.produce(name, 0, again)
                assert (repeated.is_duplicate, repeated.base_offset) == (True, len(history) - 1)
            await self.produce(topics, name, (b"0", b"after"))
            self.machine.clock.advance_ms(HOUR_MS)
            await look_after(topics, name)
        if "passing" in known:
            self.deleting.add("passing")
            await topics.streams.delete("passing")
            with pytest.raises(TopicNotFound):
                in_folder(topics).find("passing")
            self.deleted.add("passing")


def live(story: Story, act: str, seed: int) -> None:
    async def main() -> None:
        try:
            await story.machine.run(getattr(story, act)(story.machine.start()))
        except Died:
            assert act == "tell", f"it dies when it should {act}"
        else:
            story.machine.kill()

    simulate(main, seed=seed)


def steps() -> int:
    story = Story(None)
    live(story, "tell", 0)
    assert story.machine.log_events.names().count("streams.cleaned") == 2
    return story.machine.disk.operations


@pytest.mark.parametrize("way", ["kill", "power cut"])
def test_a_crash_at_any_step_leaves_what_was_told_and_nothing_half_done(way: str) -> None:
    count = steps()
    assert count > 200
    for step in range(0 if way == "kill" else 1, count, STRIDE):
        story = Story(step, seed=step)
        live(story, "tell", step)
        for _ in range(2):
            if way == "kill":
                story.machine.kill()
            else:
                story.machine.power_cut(lambda _path, _page: False)
            try:
                live(story, "look", step)
            except Exception as error:
                raise AssertionError(f"after a {way} at step {step}: {error}") from error
        assert "streams.upkeep_failed" not in story.machine.log_events.names()
