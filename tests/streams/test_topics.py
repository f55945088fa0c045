"""Topics are made, changed and deleted wholly, and what is told of them stays true."""

import asyncio
import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.access import Caller, Grant, Role
from penstock.contract.topic_settings import BadTopicSettings, TopicSettings
from penstock.log.interface import LogFull
from penstock.log.recovery import LogCorrupted
from penstock.log.settings import LogSettings
from penstock.runtime.interface import FolderTaken, Runtime
from penstock.streams.embedded.topic_store import _all
from penstock.streams.interface import (
    BadTopicName,
    PartitionNotFound,
    PartitionsCannotShrink,
    TooManyPartitions,
    TopicExists,
    TopicNotFound,
    check_topic_name,
)
from tests.simulation.disk import SimDisk
from tests.simulation.world import Died, Machine
from tests.streams.small import FOLDER, SMALL, TINY, bodies, in_folder, look_after, open_topics, running, values
from tests.waiting import let_others_run


async def test_a_topic_is_found_by_its_name_and_by_its_id_after_a_restart(machine: Machine) -> None:
    settings = TopicSettings(partitions=3, retention_ms=None, is_compacted=True, message_bytes_max=500)
    async with running(machine) as topics:
        made = await topics.streams.create("events", settings)
        assert len(made.id) == 16

    async with running(machine) as topics:
        found = in_folder(topics).find("events")
        assert (found.name, found.id, found.settings) == ("events", made.id, settings)
        assert len(found.partitions) == 3
        assert topics.streams.find_by_id(made.id) is found
        assert topics.list() == [found]


async def test_a_topic_that_is_not_there_is_not_found(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        with pytest.raises(TopicNotFound):
            in_folder(topics).find("other")
        with pytest.raises(TopicNotFound):
            topics.streams.find_by_id(bytes(16))
        with pytest.raises(PartitionNotFound):
            await topics.produce("events", 1, values(b"x"))
        with pytest.raises(PartitionNotFound):
            topics.latest("events", -1)


async def test_two_topics_cannot_have_names_that_metrics_cannot_tell_apart(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("my.events", TINY)
        with pytest.raises(TopicExists):
            await topics.streams.create("my.events", TINY)
        with pytest.raises(BadTopicName):
            topics.streams.check_create("my_events", TINY)
        topics.streams.check_create("myevents", TINY)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "a\0", "x" * 250, "../../etc"])
async def test_a_name_that_could_be_a_path_is_no_topic_name(name: str, machine: Machine) -> None:
    async with running(machine) as topics:
        with pytest.raises(BadTopicName):
            await topics.streams.create(name, TINY)


@given(st.text(alphabet="abZ09._-/\\ \0\né", max_size=300))
def test_no_allowed_name_can_leave_its_folder(name: str) -> None:
    try:
        check_topic_name(name)
    except BadTopicName:
        return
    assert name.isascii()
    assert not set(name) & set("/\\\0 \n")
    assert name.strip(".")


async def test_the_id_of_a_deleted_topic_is_never_used_again(machine: Machine) -> None:
    seen: set[bytes] = set()
    numbers: set[int] = set()
    for _ in range(3):
        async with running(machine) as topics:
            for _ in range(3):
                made = await topics.streams.create("events", TINY)
                await topics.produce("events", 0, values(b"old"))
                seen.add(made.id)
                numbers.add(made.number)
                await topics.streams.delete("events")
    assert (len(seen), len(numbers)) == (9, 9)


async def test_a_topic_made_again_has_none_of_the_records_of_the_first(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        await topics.produce("events", 0, values(b"old"))
        await topics.streams.delete("events")
        with pytest.raises(TopicNotFound):
            await topics.produce("events", 0, values(b"lost"))
        await topics.streams.create("events", TINY)
        assert await bodies(topics) == []
        assert len(machine.disk.names(f"{FOLDER}/partitions")) == 1


async def test_partitions_can_be_added_and_not_taken_away(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", replace(TINY, partitions=2))
        await topics.produce("events", 1, values(b"kept"))
        await topics.streams.grow("events", 4)
        await topics.produce("events", 3, values(b"new"))
        for fewer in (4, 1):
            with pytest.raises(PartitionsCannotShrink):
                await topics.streams.grow("events", fewer)
        with pytest.raises(BadTopicSettings):
            await topics.streams.grow("events", 1_001)

    async with running(machine) as topics:
        assert in_folder(topics).find("events").settings.partitions == 4
        assert await bodies(topics, partition=1) == [b"kept"]
        assert await bodies(topics, partition=3) == [b"new"]


async def test_there_is_a_limit_to_all_partitions_together(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.streams.embedded.topic_store.PARTITIONS_MAX", 3)
    async with running(machine) as topics:
        await topics.streams.create("events", replace(TINY, partitions=2))
        with pytest.raises(TooManyPartitions):
            await topics.streams.create("other", replace(TINY, partitions=2))
        with pytest.raises(TooManyPartitions):
            await topics.streams.grow("events", 4)
        assert [topic.name for topic in topics.list()] == ["events"]


async def test_changed_settings_are_there_after_a_restart_and_count_at_once(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TopicSettings())
        await topics.streams.change("events", replace(TINY, message_bytes_max=200))
        for number in range(20):
            await topics.produce("events", 0, values(b"%d" % number + bytes(60)))
        assert len(in_folder(topics).find("events").partitions[0].log.segments) > 1
        with pytest.raises(BadTopicSettings):
            await topics.streams.change("events", TopicSettings(partitions=2))
        with pytest.raises(TopicNotFound):
            await topics.streams.change("other", TINY)
    async with running(machine) as topics:
        assert in_folder(topics).find("events").settings.message_bytes_max == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": 0},
        {"partitions": 1_001},
        {"segment_bytes": 10},
        {"message_bytes_max": 17 * 1024 * 1024},
        {"retention_ms": -1},
        {"unpacked_bytes_max": 1 << 40},
        {"codec": 5},
    ],
    ids=str,
)
def test_settings_out_of_bounds_are_refused_and_named(wrong: dict[str, int]) -> None:
    with pytest.raises(BadTopicSettings) as refused:
        TopicSettings(**wrong)  # type: ignore[arg-type]
    assert refused.value.field == next(iter(wrong))


async def test_what_means_nothing_here_is_remembered_as_it_was_said(machine: Machine) -> None:
    said = replace(TINY, remarks=(("flush.ms", "7"), ("preallocate", "true")), codec=3)
    async with running(machine) as topics:
        await topics.streams.create("events", said)
    async with running(machine) as topics:
        assert in_folder(topics).find("events").settings == said


async def test_a_folder_belongs_to_one_process_at_a_time(machine: Machine) -> None:
    async with running(machine):
        assert machine.runtime is not None
        with pytest.raises(FolderTaken):
            await open_topics(machine.runtime, FOLDER, SMALL)


async def test_a_partition_that_is_gone_from_the_disk_is_damage_and_no_empty_topic(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        await topics.produce("events", 0, values(b"kept"))
    folder = f"{FOLDER}/partitions/1-0"
    for name in machine.disk.names(folder):
        machine.disk.remove(f"{folder}/{name}")
    with pytest.raises(LogCorrupted, match="1-0"):
        async with running(machine):
            pass
    machine.kill()


async def test_the_catalog_stays_short_however_often_topics_change(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("kept", TINY)
        for number in range(60):
            await topics.streams.create(f"passing-{number}", TINY)
            await topics.streams.delete(f"passing-{number}")
        names = machine.disk.names(f"{FOLDER}/catalog")
        assert sum(name.endswith(".log") for name in names) <= 3
    async with running(machine) as topics:
        assert [topic.name for topic in topics.list()] == ["kept"]
        assert (await topics.streams.create("next", TINY)).number == 62


async def test_a_fact_costs_what_it_changes_however_many_topics_there_are(machine: Machine) -> None:
    """Bytes that the catalog writes for each of the same changes, with few topics and with many."""
    async with running(machine, replace(SMALL, catalog_log=LogSettings(allocate_bytes=0, spare_bytes=0))) as topics:
        costs: list[int] = []
        for many in (10, 300):
            count = len(topics.list())
            made = await topics.streams.create_all([(f"t-{number}", TINY) for number in range(count, many)])
            assert not [each for each in made if isinstance(each, Exception)]
            before = catalog_bytes(machine)
            for _ in range(20):
                await topics.streams.create("passing", TINY)
                await topics.produce("passing", 0, values(b"a"))
                await topics.streams.trim("passing", 0, 1)
                await topics.streams.delete("passing")
            costs.append(catalog_bytes(machine) - before)
        assert costs[1] < 1.1 * costs[0]


async def test_snapshots_of_the_catalog_are_written_once_for_as_much_as_they_let_go_of(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create_all([(f"t-{number}", TINY) for number in range(150)])
        log = in_folder(topics)._catalog._log
        sizes: list[int] = []
        for number in range(600):
            before = log.end_offset
            await topics.streams.change(f"t-{number % 150}", replace(TINY, message_bytes_max=1_000 + number))
            sizes.append(log.end_offset - before)
        # A snapshot is three records more, and between two of them is as much of other facts.
        assert set(sizes) == {1, 4}
        assert sizes.count(4) <= 4
    async with running(machine) as topics:
        found = {topic.name: topic.settings.message_bytes_max for topic in topics.list()}
        assert found == {f"t-{number}": 1_450 + number for number in range(150)}


def catalog_bytes(machine: Machine) -> int:
    folder = f"{FOLDER}/catalog"
    files = [machine.disk.open(f"{folder}/{name}") for name in machine.disk.names(folder) if name.endswith(".log")]
    return sum(file.size() for file in files)


async def test_many_topics_are_made_at_once_and_each_is_refused_for_itself(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("there", TINY)
        wanted = ["a", "there", "b", "no/name", "a", "x.y", "x_y", "c"]
        made = await topics.streams.create_all([(name, TINY) for name in wanted])
        kinds = [type(each).__name__ for each in made]
        assert kinds == [
            "TopicOf", "TopicExists", "TopicOf", "BadTopicName", "TopicExists", "TopicOf", "TopicExists", "TopicOf"
        ]  # fmt: skip
    async with running(machine) as topics:
        assert [topic.name for topic in topics.list()] == ["a", "b", "c", "there", "x.y"]
        await topics.streams.delete("x.y")
        await topics.streams.create("x_y", TINY)


async def test_no_producer_id_is_given_twice_whatever_happens(machine: Machine) -> None:
    seen: list[int] = []
    for _ in range(3):
        async with running(machine) as topics:
            seen += [await topics.streams.new_producer() for _ in range(1_100)]
    assert len(set(seen)) == 3_300
    assert min(seen) > 0


async def test_a_full_disk_refuses_a_topic_and_leaves_nothing_of_it() -> None:
    machine = Machine(disk=SimDisk(capacity_bytes=1_500_000))
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        with pytest.raises(LogFull):
            await topics.streams.create("large", replace(TINY, partitions=100))
        with pytest.raises(LogFull):
            await topics.streams.grow("events", 100)
        assert [topic.name for topic in topics.list()] == ["events"]
        assert len(in_folder(topics).find("events").partitions) == 1
        assert machine.disk.names(f"{FOLDER}/partitions") == ["1-0"]
        await topics.produce("events", 0, values(b"still"))
        await topics.streams.delete("events")


async def test_a_disk_that_fails_stops_the_process_before_anyone_is_told(machine: Machine) -> None:
    told: list[bytes] = []

    async def live(runtime: Runtime) -> None:
        topics = await open_topics(runtime, FOLDER, SMALL)
        await topics.streams.create("events", TINY)
        await topics.produce("events", 0, values(b"good"))
        told.append(b"good")
        machine.disk.fail_sync_after = 0
        await topics.produce("events", 0, values(b"bad"))
        told.append(b"bad")

    with pytest.raises(Died):
        await machine.run(live(machine.start()))
    machine.power_cut(lambda _path, _page: False)
    assert told == [b"good"]
    async with running(machine) as topics:
        assert await bodies(topics) == told


async def test_a_topic_whose_caller_goes_is_made_wholly_or_not(machine: Machine) -> None:
    async with running(machine) as topics:
        for turn in range(12):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(topics.streams.create(f"t{turn}", replace(TINY, partitions=2)), turn / 1_000)
        await topics.streams.create("last", TINY)
        there = topics.list()
        assert all(len(topic.partitions) == topic.settings.partitions for topic in there)
        folders = machine.disk.names(f"{FOLDER}/partitions")
        assert len(folders) == sum(len(topic.partitions) for topic in there)
    async with running(machine) as topics:
        assert [topic.name for topic in topics.list()] == [topic.name for topic in there]


async def test_a_start_costs_few_syncs_for_a_topic_and_a_quiet_one_nothing_after_it(machine: Machine) -> None:
    """Operations on the disk: for each of many empty topics a start has the same, and upkeep none."""
    async with running(machine) as topics:
        await topics.streams.create_all([(f"t-{number}", TINY) for number in range(40)])
    before = machine.disk.operations
    async with running(machine) as topics:
        opened = machine.disk.operations
        for topic in topics.list():
            await look_after(topics, topic.name)
        assert machine.disk.operations == opened
        assert not in_folder(topics)._maintenance._due(is_time_for_all=False)
        # The folder, its manifest twice, a cut that is none and the segment, and as much for closed files.
        assert (opened - before) / 40 <= 8
        await topics.produce("t-7", 0, values(b"a"))
        assert in_folder(topics)._maintenance._due(is_time_for_all=False) == [(in_folder(topics).find("t-7"), 0)]


async def test_thousands_of_topics_are_opened_and_closed_by_few_tasks() -> None:
    tasks: list[int] = []

    async def act(number: int) -> int:
        tasks.append(len(asyncio.all_tasks()))
        await let_others_run()
        return number

    assert await _all(act, range(2_000)) == list(range(2_000))
    assert max(tasks) < 20


async def test_if_one_of_many_goes_wrong_the_others_come_to_their_end() -> None:
    done: list[int] = []

    async def act(number: int) -> None:
        await let_others_run()
        if number % 10 == 3:
            raise ValueError(str(number))
        done.append(number)

    with pytest.raises(ValueError, match=r"^3$"):
        await _all(act, range(100))
    assert len(done) == 90


class Counted(Caller):
    """A key with a right to some topics, of which is counted how often it is asked for."""

    asked = 0

    def has(self, role: Role, queue: str) -> bool:
        self.asked += 1
        return super().has(role, queue)


async def test_the_share_of_a_key_is_counted_once_for_many_new_topics_and_only_near_its_end(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create_all([(f"t-{number}", TINY) for number in range(50)])
        caller = Counted("key", (Grant(Role.ADMIN, "t-*"),))
        topics.share.percent = 1
        assert topics.beyond_share(caller, [10] * 5) == [None] * 5
        assert caller.asked == 0
        refusals = topics.beyond_share(caller, [30, 30, 10, 20, 10])
        assert [refusal is not None for refusal in refusals] == [False, True, False, True, False]
        assert caller.asked == 50
        with pytest.raises(TooManyPartitions, match="with 51 more, the key 'key' would have more than 100"):
            topics.check_share(caller, 51)
