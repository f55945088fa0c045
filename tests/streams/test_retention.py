"""Records are kept for a time or a size: at least so long, and not much longer."""

from dataclasses import replace

from penstock.broker.topics import Topics
from penstock.contract.topic_settings import TopicSettings
from tests.simulation.world import Machine
from tests.streams.small import HOUR_MS, SMALL, TINY, bodies, in_folder, look_after, running, values
from tests.waiting import elapse

HOURLY = replace(TINY, retention_ms=HOUR_MS, ahead_ms_max=None)


async def test_a_segment_ends_before_the_batch_that_would_not_fit(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        log = in_folder(topics).find("events").partitions[0].log
        sent = values(bytes(200))
        for number in range(9):
            await topics.produce("events", 0, sent)
            # With the append that begins the next one, a segment is closed, and can be compacted or dropped.
            assert len(log.segments) == 1 + number // 3
        assert [segment.next_offset - segment.base_offset for segment in log.segments] == [3, 3, 3]
        assert all(segment.size_bytes <= TINY.segment_bytes for segment in log.segments)


async def test_batches_that_come_at_once_are_parted_where_a_segment_ends(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        for number in range(40):
            await topics.produce("events", 0, values(b"%d" % number + bytes(200)), waits=False)
        await topics.produce("events", 0, values(b"last"))
        log = in_folder(topics).find("events").partitions[0].log
        assert all(segment.size_bytes <= TINY.segment_bytes for segment in log.segments)
        assert len(await bodies(topics)) == 41


async def fill(topics: Topics, machine: Machine, count: int) -> None:
    for _ in range(count):
        await topics.produce("events", 0, values(bytes(60), at_ms=machine.clock.now_ms()))


async def test_what_is_older_than_its_time_goes_segment_by_segment(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", HOURLY)
        await fill(topics, machine, 30)
        machine.clock.advance_ms(HOUR_MS // 2)
        await fill(topics, machine, 30)
        await look_after(topics)
        assert topics.earliest("events", 0) == 0
        machine.clock.advance_ms(HOUR_MS // 2 + 1_000)
        await look_after(topics)
        # The segment in which both meet stays as long as its newest record.
        assert 20 < topics.earliest("events", 0) <= 30
        assert len(await bodies(topics)) == 60 - topics.earliest("events", 0)


async def test_the_last_records_of_a_quiet_partition_go_too(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", HOURLY)
        await fill(topics, machine, 3)
        machine.clock.advance_ms(HOUR_MS - 10_000)
        await look_after(topics)
        assert len(await bodies(topics)) == 3
        machine.clock.advance_ms(20_000)
        await look_after(topics)
        assert (topics.earliest("events", 0), topics.latest("events", 0)) == (3, 3)
        await look_after(topics)
    async with running(machine) as topics:
        await fill(topics, machine, 1)
        assert topics.latest("events", 0) == 4


async def test_no_more_than_so_many_bytes_are_kept_but_for_a_segment(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", replace(TINY, retention_bytes=5_000, retention_ms=None))
        await fill(topics, machine, 200)
        await look_after(topics)
        sizes = [segment.size_bytes for segment in in_folder(topics).find("events").partitions[0].log.segments]
        assert 3_000 < sum(sizes) <= 5_000 + 1_500


async def test_a_topic_that_is_only_compacted_forgets_nothing_by_age(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", replace(HOURLY, is_compacted=True, is_deleted=False))
        partition = in_folder(topics).find("events").partitions[0]
        batch = values(b"x", at_ms=machine.clock.now_ms())
        partition.settings = HOURLY
        for _ in range(30):
            await topics.produce("events", 0, batch)
        partition.settings = in_folder(topics).find("events").settings
        machine.clock.advance_ms(10 * HOUR_MS)
        await in_folder(topics)._maintenance.look_after(in_folder(topics).find("events"), 0)
        assert topics.earliest("events", 0) == 0


async def test_maintenance_needs_no_request(machine: Machine) -> None:
    async with running(machine, replace(SMALL, upkeep_ms=1_000, retention_check_ms=30_000)) as topics:
        await topics.streams.create("events", replace(HOURLY, retention_bytes=2_000))
        await topics.streams.create("quiet", HOURLY)
        await topics.produce("quiet", 0, values(b"x", at_ms=machine.clock.now_ms()))
        await fill(topics, machine, 100)
        await elapse(3)
        # A closed segment is noticed at once.
        assert topics.earliest("events", 0) > 50
        assert in_folder(topics).find("events").partitions[0].remembered_offset > 50
        machine.clock.advance_ms(2 * HOUR_MS)
        await elapse(31)
        assert topics.earliest("quiet", 0) == 1
        assert "streams.upkeep_failed" not in machine.log_events.names()


async def test_old_times_of_producers_do_not_close_what_is_written(machine: Machine) -> None:
    """Records of long ago go with their segment, and what is sent after them is there."""
    async with running(machine) as topics:
        await topics.streams.create("events", TopicSettings(retention_ms=HOUR_MS, segment_bytes=1_024))
        await topics.produce("events", 0, values(b"of long ago", at_ms=1_000))
        await look_after(topics)
        await topics.produce("events", 0, values(b"of now", at_ms=machine.clock.now_ms()))
        assert await bodies(topics) == [b"of now"]
