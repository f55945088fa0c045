"""Topics and offsets are copied while they are used, and the copy opens as a whole of its own."""

import asyncio

import pytest

from penstock.broker.topics import Topics
from penstock.contract.topic_settings import TopicSettings
from penstock.log.backup import Folder, TargetNotEmpty
from penstock.runtime.interface import Runtime
from penstock.streams.embedded.backup import CATALOG, GROUPS, LOOK, backup_streams, is_streams, logs_of
from penstock.streams.embedded.offset_store import Offsets
from penstock.streams.group_records import CommittedOffset
from tests.simulation.loop import simulate
from tests.simulation.world import Machine
from tests.streams.grouping import OFFSETS
from tests.streams.small import FOLDER, SMALL, TINY, Sender, batch, bodies, in_folder, look_after, open_topics, values
from tests.waiting import elapse

BEFORE = [b"%d" % number for number in range(8)]


async def begun(runtime: Runtime) -> tuple[Topics, Offsets]:
    """Return topics with some records, all of which the group `readers` has read."""
    topics = await open_topics(runtime, FOLDER, SMALL)
    offsets = await Offsets.open(runtime, f"{FOLDER}/{GROUPS}", OFFSETS)
    for name in ("events", "doomed"):
        await topics.streams.create(name, TINY)
        for body in BEFORE:
            await topics.produce(name, 0, values(body + bytes(200)))
        await commit(topics, offsets, name)
    return topics, offsets


async def commit(topics: Topics, offsets: Offsets, name: str) -> None:
    offsets.commit("readers", {(name, 0): CommittedOffset(topics.latest(name, 0), -1, "", 0)})
    await offsets.durable()


async def copied(machine: Machine, target: Machine) -> None:
    await backup_streams(Folder(machine.disk, FOLDER), target.start(), FOLDER)
    target.kill()


async def check_copy(target: Machine) -> dict[str, list[bytes | None]]:
    """Open a copy, hold it to the laws of every copy, and return what is in it."""
    assert not target.disk.exists(f"{FOLDER}/{LOOK}")
    topics, runtime = await open_topics(target.start(), FOLDER, SMALL), target.runtime
    assert runtime is not None
    offsets = await Offsets.open(runtime, f"{FOLDER}/{GROUPS}", OFFSETS)
    for (name, partition), kept in offsets.of("readers").items():
        assert kept.offset <= topics.latest(name, partition), "an offset is ahead of the records"
    assert ("events", 0) in offsets.of("readers")
    found = {topic.name: await bodies(topics, topic.name) for topic in topics.list()}
    await offsets.close()
    await topics.close()
    target.kill()
    return found


@pytest.mark.parametrize("seed", range(12))
def test_what_was_acknowledged_before_is_in_a_copy_made_while_topics_come_and_go(seed: int) -> None:
    machine, target = Machine(seed), Machine(seed + 100)

    async def change(topics: Topics, offsets: Offsets) -> None:
        await elapse(seed / 2_000)
        await topics.produce("events", 0, values(b"after" + bytes(200)))
        await commit(topics, offsets, "events")
        await topics.streams.trim("events", 0, -1)
        await look_after(topics)
        await topics.streams.delete("doomed")
        await topics.streams.create("doomed", TINY)
        await topics.produce("doomed", 0, values(b"anew"))
        await topics.streams.create("late", TopicSettings(partitions=2))
        await commit(topics, offsets, "late")

    async def main() -> dict[str, list[bytes | None]]:
        topics, offsets = await begun(machine.start())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(copied(machine, target))
            tasks.create_task(change(topics, offsets))
        await offsets.close()
        await topics.close()
        return await check_copy(target)

    found = simulate(main, seed=seed)
    whole = [body + bytes(200) for body in BEFORE]
    after = b"after" + bytes(200)
    # Either everything, or what was trimmed on purpose meanwhile is gone.
    assert found["events"] in ([], [after], whole, [*whole, after])
    assert found.get("doomed", []) in (whole, [b"anew"], [])


async def test_the_ids_of_producers_whose_records_are_in_a_copy_are_not_given_out_again(machine: Machine) -> None:
    topics, offsets = await begun(machine.start())
    target = Machine(9)

    async def produce() -> list[int]:
        used: list[int] = []
        while not target.disk.exists(f"{FOLDER}/partitions/2-0/manifest"):
            used += [await topics.streams.new_producer() for _ in range(300)]
            sent = batch((None, b"mine"), sender=Sender(used[-1]), sequence=0)
            await topics.produce("events", 0, sent)
        return used

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(copied(machine, target))
        used = tasks.create_task(produce())
    restored = await open_topics(target.start(), FOLDER, SMALL)
    known = in_folder(restored).find("events").partitions[0].producers._known
    new = await restored.streams.new_producer()
    assert known, "the copy has none of their records"
    assert max(known) < new
    assert set(known) <= set(used.result())
    await restored.close()
    await offsets.close()
    await topics.close()


async def test_what_is_known_of_producers_is_copied_with_their_records(machine: Machine) -> None:
    topics, offsets = await begun(machine.start())
    producer = await topics.streams.new_producer()
    sent = batch((None, b"once"), sender=Sender(producer), sequence=0)
    first = await topics.produce("events", 0, sent)
    await look_after(topics)
    target = Machine(9)
    await copied(machine, target)
    assert target.disk.exists(f"{FOLDER}/partitions/1-0/producers")
    restored = await open_topics(target.start(), FOLDER, SMALL)
    again = await restored.produce("events", 0, sent)
    assert again.is_duplicate
    assert again.base_offset == first.base_offset
    await restored.close()
    await offsets.close()
    await topics.close()


async def test_a_copy_of_topics_goes_into_an_empty_folder_and_is_one_of_topics(machine: Machine) -> None:
    topics, offsets = await begun(machine.start())
    target = Machine(9)
    await copied(machine, target)
    assert is_streams(target.disk, FOLDER)
    assert not is_streams(target.disk, f"{FOLDER}/{CATALOG}")
    assert logs_of(target.disk, FOLDER) == [CATALOG, GROUPS, "partitions/1-0", "partitions/2-0"]
    with pytest.raises(TargetNotEmpty, match=FOLDER):
        await copied(machine, target)
    await offsets.close()
    await topics.close()
