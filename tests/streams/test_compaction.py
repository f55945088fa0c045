"""Of a compacted topic the last record of each key stays, at its offset, and no reader is disturbed."""

import asyncio
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.topics import FetchOne, Topics
from penstock.contract.topic_settings import TopicSettings
from penstock.log import record
from penstock.log.record import header as read_header
from penstock.runtime.interface import BackgroundProcessFailed
from penstock.streams.compaction import with_cleaning
from penstock.streams.embedded import compaction
from tests.simulation.clock import EPOCH_MS
from tests.simulation.disk import SimDisk
from tests.simulation.loop import simulate
from tests.simulation.world import Machine
from tests.streams.small import (
    CODECS,
    FOLDER,
    HOUR_MS,
    SMALL,
    Pair,
    Read,
    batch,
    in_folder,
    look_after,
    read_all,
    running,
)
from tests.waiting import elapse

COMPACTED = TopicSettings(
    segment_bytes=1_024, is_compacted=True, is_deleted=False, dirty_percent_max=1, tombstone_ms=HOUR_MS
)


def newest(history: list[Pair]) -> dict[bytes, tuple[int, bytes | None]]:
    """Return what must be left of all that was sent: the last record of each key, at its offset."""
    return {key: (offset, value) for offset, (key, value) in enumerate(history) if key is not None}


def left(found: list[Read]) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {entry.key: (entry.offset, entry.value) for entry in found}


async def send(topics: Topics, history: list[Pair], *, codec: str = "none", size: int = 4, start: int = 0) -> None:
    for at in range(start, len(history), size):
        await topics.produce("events", 0, batch(*history[at : at + size], codec=codec))


async def close_segment(topics: Topics) -> None:
    await in_folder(topics).find("events").partitions[0].log.roll()


@pytest.mark.parametrize("codec", CODECS)
async def test_the_last_record_of_each_key_stays_at_its_offset(codec: str, machine: Machine) -> None:
    history: list[Pair] = [(b"key %d" % (number % 7), b"%d" % number + bytes(40)) for number in range(100)]
    async with running(machine) as topics:
        await topics.streams.create("events", COMPACTED)
        await send(topics, history, codec=codec)
        await close_segment(topics)
        log = in_folder(topics).find("events").partitions[0].log
        before = sum(segment.size_bytes for segment in log.segments)
        await look_after(topics)
        found = await read_all(topics)
        assert left(found) == newest(history)
        assert len(found) == 7
        assert sum(segment.size_bytes for segment in log.segments) < before / 2
        # Small segments have become one.
        assert len(log.segments) == 2
        assert topics.latest("events", 0) == 100
    async with running(machine) as topics:
        assert await read_all(topics) == found
        assert (await topics.produce("events", 0, batch((b"key 1", b"next")))).base_offset == 100


async def test_what_was_cleaned_is_cleaned_again_with_what_came_after(machine: Machine) -> None:
    history: list[Pair] = []
    async with running(machine) as topics:
        await topics.streams.create("events", COMPACTED)
        for turn in range(5):
            start = len(history)
            history += [(b"%d" % (number % (5 + turn)), b"turn %d" % turn + bytes(30)) for number in range(40)]
            await send(topics, history, start=start)
            await close_segment(topics)
            await look_after(topics)
            assert left(await read_all(topics)) == newest(history)
        assert "streams.upkeep_failed" not in machine.log_events.names()


async def test_the_active_segment_is_not_touched(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", replace(COMPACTED, segment_bytes=1 << 20))
        await send(topics, [(b"k", b"%d" % number) for number in range(10)])
        await look_after(topics)
        assert len(await read_all(topics)) == 10


async def test_a_tombstone_deletes_its_key_and_goes_itself_after_its_time(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", COMPACTED)
        await send(topics, [(b"gone", b"v"), (b"kept", b"v"), (b"gone", None)], size=1)
        await close_segment(topics)
        await look_after(topics)
        assert left(await read_all(topics)) == {b"kept": (1, b"v"), b"gone": (2, None)}
        # Its time begins with the first cleaning that saw it, so that every reader can see it.
        machine.clock.advance_ms(HOUR_MS - 60_000)
        await again(topics)
        assert left(await read_all(topics))[b"gone"] == (2, None)
        machine.clock.advance_ms(120_000)
        await again(topics)
        assert b"gone" not in left(await read_all(topics))
        assert left(await read_all(topics))[b"kept"] == (1, b"v")


async def again(topics: Topics) -> None:
    """Give the cleaner something new to look at."""
    await topics.produce("events", 0, batch((b"other", b"v")))
    await close_segment(topics)
    await look_after(topics)


async def test_a_reader_who_is_in_the_middle_reads_on_from_its_offset(machine: Machine) -> None:
    history: list[Pair] = [(b"%d" % (number % 3), b"%d" % number + bytes(50)) for number in range(60)]
    async with running(machine) as topics:
        await topics.streams.create("events", COMPACTED)
        await send(topics, history)
        await close_segment(topics)
        (answer,) = await topics.fetch([FetchOne("events", 0, 0, 300)], bytes_max=300)
        held = [bytes(each) for each in answer.batches]
        await look_after(topics)
        assert [bytes(each) for each in answer.batches] == held
        for start in range(61):
            found = await read_all(topics, start=start)
            assert [entry.offset for entry in found] == [offset for offset in (57, 58, 59) if offset >= start]


async def test_readers_and_producers_go_on_while_it_is_cleaned(machine: Machine) -> None:
    history: list[Pair] = [(b"%d" % (number % 4), b"%d" % number + bytes(50)) for number in range(80)]
    async with running(machine) as topics:
        await topics.streams.create("events", COMPACTED)
        await send(topics, history)
        await close_segment(topics)
        machine.disk.cold = True

        async def read() -> None:
            for _ in range(30):
                found = await read_all(topics)
                assert newest([*history, *more]).keys() == left(found).keys()
                assert [entry.offset for entry in found] == sorted({entry.offset for entry in found})

        async def produce() -> None:
            for number in range(40):
                more.append((b"%d" % (number % 4), b"more %d" % number))
                await topics.produce("events", 0, batch(more[-1]))

        more: list[Pair] = []
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read())
            tasks.create_task(produce())
            await look_after(topics)
        assert left(await read_all(topics)) == newest([*history, *more])


async def test_records_younger_than_the_least_lag_stay_as_they_are(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", replace(COMPACTED, compaction_lag_ms_min=60_000))
        await send(topics, [(b"k", b"1"), (b"k", b"2")], size=1)
        await close_segment(topics)
        await look_after(topics)
        assert len(await read_all(topics)) == 2
        machine.clock.advance_ms(60_001)
        await look_after(topics)
        assert left(await read_all(topics)) == {b"k": (1, b"2")}


async def test_records_are_cleaned_at_the_greatest_lag_however_few_of_them_are_new(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", replace(COMPACTED, dirty_percent_max=100, compaction_lag_ms_max=60_000))
        await send(topics, [(b"%d" % number, bytes(50)) for number in range(20)])
        await close_segment(topics)
        await look_after(topics)
        await send(topics, [(b"k", b"1"), (b"k", b"2")], size=1)
        await look_after(topics)
        assert [entry.value for entry in await read_all(topics) if entry.key == b"k"] == [b"1", b"2"]
        # Nothing more comes: the active segment is closed for it.
        machine.clock.advance_ms(60_001)
        await look_after(topics)
        assert [entry.value for entry in await read_all(topics) if entry.key == b"k"] == [b"2"]


async def test_records_without_a_key_go_when_a_topic_becomes_compacted(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TopicSettings(segment_bytes=1_024))
        await send(topics, [(None, b"a"), (b"k", b"b"), (None, b"c"), (b"k", b"d")], size=2)
        await topics.streams.change("events", replace(COMPACTED, segment_bytes=2_048))
        await close_segment(topics)
        await look_after(topics)
        assert left(await read_all(topics)) == {b"k": (3, b"d")}


async def test_records_that_cannot_be_read_stay_as_they_are(machine: Machine) -> None:
    """A producer cannot send such; a repaired disk may hold them."""
    async with running(machine) as topics:
        await topics.streams.create("events", TopicSettings(segment_bytes=1_024))
        partition = in_folder(topics).find("events").partitions[0]
        odd = bytes(record.seal([b"no records at all"], count=2, at_ms=EPOCH_MS))
        with partition.log.reserve(len(odd)) as space:
            partition.log.append(odd, space)
        await send(topics, [(b"k", b"1"), (b"k", b"2")], size=1)
        await topics.streams.change("events", COMPACTED)
        await close_segment(topics)
        await look_after(topics)
        batches = await partition.read(0, bytes_max=10_000)
        assert bytes(batches[0][16:]) == odd[16:]
        assert [read_header(each).base_offset for each in batches] == [0, 2, 3]
        assert [read_header(each).is_hole for each in batches] == [False, True, False]


async def test_more_keys_than_memory_may_hold_are_cleaned_in_several_goes(machine: Machine) -> None:
    history: list[Pair] = [(b"%d" % (number % 30), b"%d" % number + bytes(30)) for number in range(120)]
    async with running(machine) as topics:
        await topics.streams.create("events", COMPACTED)
        await send(topics, history)
        await close_segment(topics)
        partition = in_folder(topics).find("events").partitions[0]
        closed = partition.log.segments[:-1]
        order = compaction.CompactionRequest(
            folder=partition.folder,
            log_id=partition.log.log_id,
            segments=[compaction.ClosedSegment(e.base_offset, e.next_offset, e.size_bytes) for e in closed],
            cleaned_offset=0,
            tombstones_before=0,
            segment_bytes_max=1_024,
            keys_max=10,
        )
        done = msgspec.msgpack.decode(
            compaction.clean(machine.disk, msgspec.msgpack.encode(order)), type=compaction.CompactionResult
        )
        assert 10 <= done.cleaned_offset < 20
        await look_after(topics)
        assert left(await read_all(topics)) == newest(history)


async def test_a_topic_can_be_deleted_while_it_is_cleaned(machine: Machine) -> None:
    async with running(machine, replace(SMALL, upkeep_ms=1, retention_check_ms=1)) as topics:
        await topics.streams.create("events", COMPACTED)
        await send(topics, [(b"%d" % (number % 4), bytes(50)) for number in range(80)])
        upkeep = in_folder(topics)._maintenance
        for _ in range(1_000):
            if upkeep._cleaned_now is not None:
                break
            await elapse(0.001)
        assert upkeep._cleaned_now is not None
        await topics.streams.delete("events")
        assert machine.disk.names(f"{FOLDER}/partitions") == []
        await elapse(1)
        failed = [fields for event, fields in machine.log_events.events if event.name == "streams.upkeep_failed"]
        assert failed == []


Step = tuple[int, int | None]


@settings(max_examples=30)
@given(
    steps=st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 60))), min_size=1, max_size=60),
    size=st.integers(1, 6),
    codec=st.sampled_from(sorted(CODECS)),
)
def test_whatever_was_sent_the_newest_of_each_key_is_left(steps: list[Step], size: int, codec: str) -> None:
    history: list[Pair] = [(b"%d" % key, None if length is None else bytes(length)) for key, length in steps]

    async def main() -> None:
        machine = Machine()
        async with running(machine) as topics:
            await topics.streams.create("events", COMPACTED)
            half = len(history) // 2
            await send(topics, history[:half], codec=codec, size=size)
            await close_segment(topics)
            await look_after(topics)
            await send(topics, history[half:], codec=codec, size=size)
            await close_segment(topics)
            await look_after(topics)
            found = await read_all(topics)
            assert left(found) == newest(history)
            assert len(found) == len(left(found))

    simulate(main)


def test_of_many_cleanings_only_those_that_matter_are_known() -> None:
    known: list[tuple[int, int]] = []
    for hour in range(10):
        known = with_cleaning(known, 10 * hour, hour * HOUR_MS, 3 * HOUR_MS)
    assert known == [(60, 6 * HOUR_MS), (70, 7 * HOUR_MS), (80, 8 * HOUR_MS), (90, 9 * HOUR_MS)]
    for second in range(1, 200):
        known = with_cleaning(known, 90 + second, 9 * HOUR_MS + second * 1_000, 3 * HOUR_MS)
    assert len(known) == 64
    assert known[-1] == (289, 9 * HOUR_MS + 199_000)
    assert known == sorted(known)


async def test_a_cleaning_without_room_changes_nothing_and_is_tried_again() -> None:
    machine = Machine(disk=SimDisk(capacity_bytes=10_000_000))
    history: list[Pair] = [(b"%d" % (number % 40), b"%d" % number + bytes(200)) for number in range(400)]
    async with running(machine) as topics:
        await topics.streams.create("events", replace(COMPACTED, segment_bytes=50_000))
        await send(topics, history)
        await close_segment(topics)
        before = await read_all(topics)
        machine.disk.capacity_bytes = machine.disk.used_bytes()
        with pytest.raises(BackgroundProcessFailed):
            await look_after(topics)
        assert await read_all(topics) == before
        machine.disk.capacity_bytes = None
        await look_after(topics)
        assert left(await read_all(topics)) == newest(history)
        assert not [name for name in machine.disk.names(f"{FOLDER}/partitions/1-0") if name.endswith(".cleaned")]
