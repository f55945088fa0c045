"""A consumer gets whole batches, at once when there are some, and never what is not durable."""

import asyncio
from dataclasses import replace

import pytest

from penstock.broker.topics import FetchOne, TooManyFetches, Topics
from penstock.log.interface import OffsetOutOfRange
from penstock.log.recovery import LogCorrupted
from penstock.streams.interface import PartitionNotFound, TopicNotFound
from tests.simulation.world import Machine
from tests.streams.small import FOLDER, TINY, bodies, in_folder, look_after, records_of, running, values
from tests.waiting import elapse

LARGE = 1 << 20


def one(offset: int, bytes_max: int = LARGE, partition: int = 0, topic: str = "events") -> FetchOne:
    return FetchOne(topic, partition, offset, bytes_max)


async def filled(topics: Topics, *, partitions: int = 1, each: int = 3) -> None:
    await topics.streams.create("events", replace(TINY, partitions=partitions))
    for number in range(each):
        for partition in range(partitions):
            await topics.produce("events", partition, values(b"%d" % number, b"%d too" % number))


async def test_a_fetch_in_the_middle_of_a_batch_returns_all_of_it(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics)
        (answer,) = await topics.fetch([one(3)], bytes_max=LARGE)
        assert [each.offset for each in records_of(answer.batches)] == [2, 3, 4, 5]
        assert (answer.high_watermark, answer.start_offset, answer.error) == (6, 0, None)


async def test_the_first_batch_comes_however_large_and_no_other_does(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics, partitions=3)
        await topics.streams.create("empty", TINY)
        wanted = [one(0, topic="empty"), one(0, 1), one(0, 1, partition=1), one(0, LARGE, partition=2)]
        answers = await topics.fetch(wanted, bytes_max=1)
        assert [len(answer.batches) for answer in answers] == [0, 1, 0, 0]
        size = answers[1].size_bytes
        answers = await topics.fetch(wanted, bytes_max=3 * size)
        assert [len(answer.batches) for answer in answers] == [0, 1, 0, 2]
        assert sum(answer.size_bytes for answer in answers) == 3 * size


async def test_nothing_more_is_read_for_an_answer_that_is_full(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", replace(TINY, partitions=3))
        for partition, size in enumerate((100, 300, 10)):
            await topics.produce("events", partition, values(bytes(size)))
        wanted = [one(0, partition=partition) for partition in range(3)]
        answers = await topics.fetch(wanted, bytes_max=400)
        assert [len(answer.batches) for answer in answers] == [1, 0, 0], "the third would have fitted"
        assert [answer.high_watermark for answer in answers] == [1, 1, 1]
        wanted[1] = one(0, 200, partition=1)
        answers = await topics.fetch(wanted, bytes_max=LARGE)
        assert [len(answer.batches) for answer in answers] == [1, 0, 1], "only the second had no room of its own"


async def test_a_fetch_reads_on_over_every_segment(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        sent = [b"%d" % number + bytes(80) for number in range(50)]
        for body in sent:
            await topics.produce("events", 0, values(body))
        log = in_folder(topics).find("events").partitions[0].log
        assert len(log.segments) > 5
        assert await bodies(topics) == sent
        machine.disk.cold = True
        assert await bodies(topics) == sent
        # However many segments there are, few of them are open.
        assert len(log._reader._open) <= 2


async def test_what_is_not_durable_is_not_read(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics, each=1)
        topics.append("events", 0, values(b"not yet"))
        (answer,) = await topics.fetch([one(0)], bytes_max=LARGE)
        assert answer.high_watermark == 2
        assert len(records_of(answer.batches)) == 2
        (answer,) = await topics.fetch([one(3)], bytes_max=LARGE)
        assert (answer.error, answer.batches) == (None, [])


async def test_offsets_that_are_not_there_are_out_of_range(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics)
        for offset in (-1, 7, 2**63 - 1):
            (answer,) = await topics.fetch([one(offset)], bytes_max=LARGE, wait_ms=60_000)
            assert isinstance(answer.error, OffsetOutOfRange)
            assert answer.high_watermark == 6


async def test_what_is_wrong_with_one_partition_does_not_hold_up_the_others(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics)
        wanted = [one(0, partition=5), one(0), one(0, topic="other")]
        answers = await topics.fetch(wanted, bytes_max=LARGE, bytes_min=LARGE, wait_ms=60_000)
        assert [type(answer.error) for answer in answers] == [PartitionNotFound, type(None), TopicNotFound]
        assert len(answers[1].batches) == 3


async def test_a_fetch_that_waits_is_woken_by_the_first_durable_record(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics, partitions=4, each=1)
        loop = asyncio.get_running_loop()
        wanted = [one(2, partition=partition) for partition in range(4)]
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(topics.fetch(wanted, bytes_max=LARGE, wait_ms=60_000))
            await elapse(1)
            began = loop.time()
            await topics.produce("events", 2, values(b"new"))
            answers = await waiting
            assert loop.time() - began < 0.1
        assert [len(answer.batches) for answer in answers] == [0, 0, 1, 0]
        assert all(not partition.waiting for partition in in_folder(topics).find("events").partitions)


async def test_a_fetch_waits_until_there_is_enough_or_its_time_is_up(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics, partitions=2, each=1)
        loop = asyncio.get_running_loop()
        size = len(values(b"x"))
        wanted = [one(2), one(2, partition=1)]
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(topics.fetch(wanted, bytes_max=LARGE, bytes_min=2 * size, wait_ms=60_000))
            await elapse(1)
            await topics.produce("events", 0, values(b"x"))
            await elapse(1)
            assert not waiting.done()
            await topics.produce("events", 1, values(b"x"))
            assert [len(answer.batches) for answer in await waiting] == [1, 1]
        began = loop.time()
        answers = await topics.fetch(wanted, bytes_max=LARGE, bytes_min=10 * size, wait_ms=500)
        assert 0.5 <= loop.time() - began < 0.6
        assert [len(answer.batches) for answer in answers] == [1, 1]


async def test_nothing_is_missed_between_looking_and_waiting(machine: Machine) -> None:
    """A record that comes to one partition while another is being read wakes the fetch, too."""
    async with running(machine) as topics:
        await filled(topics, partitions=2, each=1)
        machine.disk.cold = True
        (read,) = await topics.fetch([one(0, partition=1)], bytes_max=LARGE)
        enough = read.size_bytes + len(values(b"x"))
        for number in range(40):
            wanted = [one(topics.latest("events", 0)), one(0, partition=1)]
            topics.append("events", 0, values(b"x"))
            await elapse(number / 10_000)
            fetch = topics.fetch(wanted, bytes_max=LARGE, bytes_min=enough, wait_ms=60_000)
            assert all(answer.batches for answer in await asyncio.wait_for(fetch, 1))


async def test_a_fetch_that_waits_learns_that_its_topic_is_gone(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics, each=1)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(topics.fetch([one(2)], bytes_max=LARGE, wait_ms=60_000))
            await elapse(1)
            await topics.streams.delete("events")
            (answer,) = await asyncio.wait_for(waiting, 1)
            assert isinstance(answer.error, TopicNotFound)


async def test_a_server_that_stops_answers_who_waits(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics, each=1)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(topics.fetch([one(2)], bytes_max=LARGE, wait_ms=60_000))
            await elapse(1)
            topics.stop()
            (answer,) = await asyncio.wait_for(waiting, 1)
            assert answer.batches == []


async def test_a_client_that_goes_leaves_nothing_behind(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics, each=1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(topics.fetch([one(2)], bytes_max=LARGE, wait_ms=60_000), 1)
        assert not in_folder(topics).find("events").partitions[0].waiting
        assert not topics._waiting


async def test_there_is_a_limit_to_how_many_wait(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics, each=1)
        topics._waiting_max = 1
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(topics.fetch([one(2)], bytes_max=LARGE, wait_ms=2_000))
            await elapse(1)
            with pytest.raises(TooManyFetches):
                await topics.fetch([one(2)], bytes_max=LARGE, wait_ms=2_000)
            assert (await topics.fetch([one(0)], bytes_max=LARGE, wait_ms=2_000))[0].batches
            await waiting


async def test_a_reader_goes_on_while_what_it_reads_is_dropped(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics, each=30)
        (answer,) = await topics.fetch([one(0)], bytes_max=LARGE)
        before = records_of(answer.batches)
        await topics.streams.trim("events", 0, -1)
        await look_after(topics)
        assert records_of(answer.batches) == before
        (answer,) = await topics.fetch([one(0)], bytes_max=LARGE)
        assert isinstance(answer.error, OffsetOutOfRange)
        assert answer.start_offset == 60


async def test_a_damaged_segment_is_told_of_and_the_other_partitions_are_read(machine: Machine) -> None:
    async with running(machine) as topics:
        await filled(topics, partitions=2, each=30)
        machine.disk.flip_bit(f"{FOLDER}/partitions/1-0/{0:020}.log", 8 * 70)
        damaged, whole = await topics.fetch([one(0), one(0, partition=1)], bytes_max=LARGE)
        assert isinstance(damaged.error, LogCorrupted)
        assert damaged.batches == []
        assert records_of(whole.batches)[0].value == b"0"
        assert len(await bodies(topics, partition=1)) == 60
