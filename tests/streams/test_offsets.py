"""Offsets are found by time, and what is before one can be let go of."""

from dataclasses import replace

import pytest

from penstock.broker.topics import Topics
from penstock.contract.topic_settings import TopicSettings
from penstock.log.interface import OffsetOutOfRange
from penstock.log.repair import repair
from penstock.log.segment import segment_name
from penstock.log.survey import survey
from tests.simulation.clock import EPOCH_MS
from tests.simulation.world import Machine
from tests.streams.small import CODECS, FOLDER, TINY, batch, bodies, in_folder, look_after, read_all, running, values


async def three_batches(topics: Topics, codec: str = "none", settings: TopicSettings = TINY) -> None:
    """Records at 0 10 20, 30 25 40, 35 36 37 of the clock: not in order, as producers are."""
    await topics.streams.create("events", settings)
    for times in ((0, 10, 20), (30, 25, 40), (35, 36, 37)):
        records = [(b"k", b"%d" % each) for each in times]
        await topics.produce("events", 0, batch(*records, at_ms=[EPOCH_MS + each for each in times], codec=codec))


@pytest.mark.parametrize("codec", CODECS)
async def test_the_first_record_of_a_time_or_later_is_found(codec: str, machine: Machine) -> None:
    async with running(machine) as topics:
        await three_batches(topics, codec)
        found = {at: await topics.offset_at("events", 0, EPOCH_MS + at) for at in (-5, 0, 1, 20, 21, 31, 40)}
        assert found == {
            -5: (0, EPOCH_MS),
            0: (0, EPOCH_MS),
            1: (1, EPOCH_MS + 10),
            20: (2, EPOCH_MS + 20),
            21: (3, EPOCH_MS + 30),
            31: (5, EPOCH_MS + 40),
            40: (5, EPOCH_MS + 40),
        }
        assert await topics.offset_at("events", 0, EPOCH_MS + 41) is None
        assert await topics.max_timestamp("events", 0) == (5, EPOCH_MS + 40)


async def test_an_empty_partition_has_no_times(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        assert await topics.offset_at("events", 0, 0) is None
        assert await topics.max_timestamp("events", 0) is None
        assert (topics.earliest("events", 0), topics.latest("events", 0)) == (0, 0)


async def test_times_are_found_over_many_segments_and_after_a_restart(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        for number in range(60):
            await topics.produce("events", 0, values(bytes(60), at_ms=EPOCH_MS + number))
    async with running(machine) as topics:
        assert len(in_folder(topics).find("events").partitions[0].log.segments) > 4
        for number in range(60):
            assert await topics.offset_at("events", 0, EPOCH_MS + number) == (number, EPOCH_MS + number)
        assert await topics.max_timestamp("events", 0) == (59, EPOCH_MS + 59)


async def test_with_append_time_a_time_is_that_of_its_batch(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", replace(TINY, has_append_time=True))
        first = await topics.produce("events", 0, values(b"a", b"b", at_ms=5))
        machine.clock.advance_ms(100)
        second = await topics.produce("events", 0, values(b"c", b"d", at_ms=1))
        assert await topics.offset_at("events", 0, 0) == (0, first.appended_at_ms)
        assert await topics.offset_at("events", 0, first.appended_at_ms + 1) == (2, second.appended_at_ms)


async def test_what_was_trimmed_is_not_read_although_its_segment_is_there(machine: Machine) -> None:
    async with running(machine) as topics:
        await three_batches(topics)
        assert await topics.streams.trim("events", 0, 4) == 4
        assert topics.earliest("events", 0) == 4
        assert [each.offset for each in await read_all(topics)] == [4, 5, 6, 7, 8]
        assert await topics.offset_at("events", 0, 0) == (4, EPOCH_MS + 25)
        assert await topics.streams.trim("events", 0, 2) == 4
        for wrong in (10, -2):
            with pytest.raises(OffsetOutOfRange):
                await topics.streams.trim("events", 0, wrong)
    async with running(machine) as topics:
        assert topics.earliest("events", 0) == 4
        assert (await topics.produce("events", 0, values(b"next"))).start_offset == 4


async def test_a_repair_that_cuts_below_what_was_trimmed_hides_nothing_that_comes_after(machine: Machine) -> None:
    folder = f"{FOLDER}/partitions/1-0"
    async with running(machine) as topics:
        await three_batches(topics)
        assert await topics.streams.trim("events", 0, 8) == 8
    machine.disk.flip_bit(f"{folder}/{segment_name(0)}", 8 * 100)
    repair(machine.disk, survey(machine.disk, folder), "cut")
    async with running(machine) as topics:
        assert (topics.earliest("events", 0), topics.latest("events", 0)) == (0, 0)
        await topics.produce("events", 0, values(b"new"))
    async with running(machine) as topics:
        assert await bodies(topics) == [b"new"]


async def test_trimming_everything_frees_the_disk_and_offsets_go_on(machine: Machine) -> None:
    async with running(machine) as topics:
        await three_batches(topics)
        assert await topics.streams.trim("events", 0, -1) == 9
        await look_after(topics)
        log = in_folder(topics).find("events").partitions[0].log
        assert [segment.size_bytes for segment in log.segments] == [0]
        assert await bodies(topics) == []
    async with running(machine) as topics:
        assert (topics.earliest("events", 0), topics.latest("events", 0)) == (9, 9)
        assert (await topics.produce("events", 0, values(b"next"))).base_offset == 9
        assert await bodies(topics) == [b"next"]


async def test_trimming_goes_by_whole_segments_on_the_disk(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        for number in range(60):
            await topics.produce("events", 0, values(b"%d" % number + bytes(60)))
        files = machine.disk.names(f"{FOLDER}/partitions/1-0")
        await topics.streams.trim("events", 0, 30)
        await look_after(topics)
        assert topics.earliest("events", 0) == 30
        log = in_folder(topics).find("events").partitions[0].log
        assert 20 < log.start_offset <= 30
        assert len(machine.disk.names(f"{FOLDER}/partitions/1-0")) < len(files)
        assert len(await bodies(topics)) == 30


async def test_the_end_of_an_epoch_is_known(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        assert topics.epoch_end("events", 0, 0) == (0, 0)
        await topics.produce("events", 0, values(b"a", b"b"))
        assert topics.epoch_end("events", 0, 0) == (0, 2)
        assert topics.epoch_end("events", 0, 1) == (-1, -1)
        assert topics.epoch_end("events", 0, -1) == (-1, -1)
