"""Committed offsets: durable before the answer, whole after a restart, and in a log that stays small."""

import asyncio
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.consumer_groups import (
    Commit,
    Committed,
    GroupNotEmpty,
    GroupNotFound,
    IllegalGeneration,
    Lag,
    Leaver,
    MetadataTooLarge,
    PartitionUnknown,
    TooManyOffsets,
    TopicSubscribed,
    UnknownMember,
)
from penstock.contract.limits import OFFSET_METADATA_BYTES_MAX
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogFull
from penstock.runtime.interface import Runtime
from penstock.streams.embedded.offset_store import Offsets, OffsetsSettings
from penstock.streams.group_coordinator import CoordinatorSettings
from penstock.streams.group_records import CommittedOffset, UnknownOffsetRecord
from tests.simulation.disk import PAGE
from tests.simulation.loop import simulate
from tests.simulation.world import Died, Machine
from tests.streams.grouping import FOLDER, LOG, OFFSETS, Consumer, Topics, enter_together, groups_on
from tests.waiting import elapse


async def test_an_offset_is_committed_with_its_metadata_and_epoch(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        refusals = await groups.commit("readers", [Commit("events", 0, 7, 3, "half way")])
        assert refusals == [None]
        assert await groups.committed("readers", {"events": [1, 0]}) == [
            Committed("events", 1, -1, -1, ""),
            Committed("events", 0, 7, 3, "half way"),
        ]
        assert await groups.committed("readers", None) == [Committed("events", 0, 7, 3, "half way")]


async def test_a_group_that_does_not_exist_has_committed_nothing(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        assert await groups.committed("strangers", {"events": [0]}) == [Committed("events", 0)]
        assert await groups.committed("strangers", None) == []
        assert await groups.listed() == []


def test_a_commit_that_was_answered_survives_a_power_cut(machine: Machine) -> None:
    async def life(runtime: Runtime) -> None:
        async with groups_on(runtime) as groups:
            await groups.commit("readers", [Commit("events", 0, 7), Commit("events", 1, 9, 2, "x")])
            machine.power_cut()
            await elapse(1)

    async def main() -> list[Committed]:
        with pytest.raises(Died):
            await machine.run(life(machine.start()))
        async with groups_on(machine) as groups:
            return await groups.committed("readers", None)

    assert simulate(main) == [Committed("events", 0, 7), Committed("events", 1, 9, 2, "x")]


async def test_many_commits_share_one_write_and_one_fsync(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        await groups.commit("readers", [Commit("events", 0, 0)])
        before = machine.disk.operations
        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(groups.commit(f"group {number}", [Commit("events", 0, number)]))
        # Each reservation allocates in these settings.
        assert machine.disk.operations - before - 50 == 2


async def test_rows_are_refused_one_by_one(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        long = "ä" * (OFFSET_METADATA_BYTES_MAX // 2)
        refusals = await groups.commit(
            "readers",
            [Commit("events", 0, 1, -1, long), Commit("events", 1, 1, -1, long + "x"), Commit("events", 2, 1)],
        )
        assert [type(refusal) for refusal in refusals] == [type(None), MetadataTooLarge, PartitionUnknown]
        assert [each.partition for each in await groups.committed("readers", None)] == [0]


async def test_only_a_member_of_the_generation_commits_for_a_group_with_members(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        ann = Consumer(groups, "ann")
        await ann.enter()
        rows = [Commit("events", 0, 5)]
        assert await groups.commit("readers", rows, member_id=ann.member_id, generation=1) == [None]
        with pytest.raises(IllegalGeneration):
            await groups.commit("readers", rows, member_id=ann.member_id, generation=2)
        with pytest.raises(UnknownMember):
            await groups.commit("readers", rows)
        with pytest.raises(IllegalGeneration):
            await groups.commit("forgotten", rows, member_id="ann", generation=3)


async def test_there_is_a_limit_to_all_offsets_together(machine: Machine) -> None:
    async with groups_on(machine, settings=CoordinatorSettings(offsets_max=2)) as groups:
        await groups.commit("a", [Commit("events", 0, 1), Commit("events", 1, 1)])
        with pytest.raises(TooManyOffsets):
            await groups.commit("b", [Commit("events", 0, 1)])
        assert await groups.commit("a", [Commit("events", 0, 2)]) == [None]


async def test_a_full_disk_refuses_a_commit_and_forgets_nothing(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        await groups.commit("a", [Commit("events", 0, 1)])
        machine.disk.capacity_bytes = machine.disk.used_bytes()
        with pytest.raises(LogFull):
            await groups.commit("b", [Commit("events", 0, 1, -1, "x" * PAGE)] * 2)
        assert await groups.committed("a", None) == [Committed("events", 0, 1)]
        assert await groups.committed("b", None) == []


async def test_the_log_stays_small_however_often_is_committed(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        for number in range(1_000):
            await groups.commit("readers", [Commit("events", number % 2, number)])
            await elapse(0.01)
        offsets = groups.coordinator._offsets
        assert isinstance(offsets, Offsets)
        # All of it would be 150,000 bytes; it is looked at once in a second, which is 100 commits here.
        assert offsets.size_bytes < 2 * OFFSETS.compact_bytes_min
    async with groups_on(machine.runtime or machine) as groups:
        assert [each.offset for each in await groups.committed("readers", None)] == [998, 999]


async def test_offsets_go_when_their_group_has_not_read_for_their_time(machine: Machine) -> None:
    topics = Topics(events=[(0, 9)], other=[(0, 9)])
    async with groups_on(machine, topics=topics, settings=CoordinatorSettings(retention_ms=3_600_000)) as groups:
        ann = Consumer(groups, "ann")
        await ann.enter()
        rows = [Commit("events", 0, 5), Commit("other", 0, 5)]
        await groups.commit("readers", rows, member_id=ann.member_id, generation=1)
        await groups.commit("short", [Commit("events", 0, 5)], retention_ms=60_000)
        await groups.commit("simple", [Commit("events", 0, 5)])
        for _ in range(4_000):
            await elapse(1)
            await ann.beat()
        # Ann reads `events` and not `other`; the consumer of the others has been silent for too long.
        assert await groups.committed("readers", None) == [Committed("events", 0, 5)]
        assert [each.group for each in await groups.listed()] == ["readers"]
        # She falls silent, and is given up. The group keeps what it had for an hour from then.
        await elapse(3_500)
        assert await groups.committed("readers", None) == [Committed("events", 0, 5)]
        await elapse(900)
        assert await groups.listed() == []


async def test_a_group_is_deleted_only_when_it_has_no_members(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        ann = Consumer(groups, "ann")
        await ann.enter()
        with pytest.raises(GroupNotEmpty):
            await groups.coordinator.delete("readers")
        with pytest.raises(GroupNotFound):
            await groups.coordinator.delete("strangers")
        await groups.commit("simple", [Commit("events", 0, 5)])
        await groups.coordinator.delete("simple")
    async with groups_on(machine.runtime or machine) as groups:
        assert [each.group for each in await groups.listed()] == ["readers"]
        assert await groups.committed("simple", None) == []


async def test_offsets_are_forgotten_one_by_one_unless_members_read_the_topic(machine: Machine) -> None:
    topics = Topics(events=[(0, 9)], other=[(0, 9)])
    async with groups_on(machine, topics=topics) as groups:
        ann = Consumer(groups, "ann")
        await ann.enter()
        rows = [Commit("events", 0, 5), Commit("other", 0, 5)]
        await groups.commit("readers", rows, member_id=ann.member_id, generation=1)
        refusals = await groups.forget_offsets("readers", [("events", 0), ("other", 0), ("other", 7)])
        assert [type(refusal) for refusal in refusals] == [TopicSubscribed, type(None), PartitionUnknown]
        assert [each.topic for each in await groups.committed("readers", None)] == ["events"]


async def test_offsets_of_members_that_are_no_consumers_stay_as_long_as_they_do(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        worker = Consumer(groups, "worker")
        worker.protocol_type = "connect"
        await worker.enter()
        await groups.commit("readers", [Commit("events", 0, 5)], member_id=worker.member_id, generation=1)
        with pytest.raises(GroupNotEmpty):
            await groups.forget_offsets("readers", [("events", 0)])
        await groups.coordinator.leave("readers", [Leaver(worker.member_id)])
        assert await groups.forget_offsets("readers", [("events", 0)]) == [None]
        assert await groups.committed("readers", None) == []


async def test_the_offsets_of_a_deleted_topic_are_forgotten(machine: Machine) -> None:
    topics = Topics(events=[(0, 9)], other=[(0, 9)])
    async with groups_on(machine, topics=topics) as groups:
        for name in ("a", "b"):
            await groups.commit(name, [Commit("events", 0, 5), Commit("other", 0, 6)])
        await groups.forget_topic("events")
        assert [await groups.committed(name, None) for name in ("a", "b")] == [[Committed("other", 0, 6)]] * 2


async def test_offsets_of_a_topic_that_went_with_the_server_are_forgotten_at_its_next_start(machine: Machine) -> None:
    async with groups_on(machine, topics=Topics(events=[(0, 9), (0, 9)], other=[(0, 9)])) as groups:
        await groups.commit("a", [Commit("events", 0, 5), Commit("other", 0, 6)])
    async with groups_on(machine.runtime or machine, topics=Topics(events=[(0, 9)])) as groups:
        await elapse(1)
        assert await groups.committed("a", None) == [Committed("events", 0, 5)]


async def test_lag_is_what_a_group_has_not_read_of_what_it_could(machine: Machine) -> None:
    async with groups_on(machine, topics=Topics(events=[(0, 100), (40, 100), (0, 10)])) as groups:
        (ann,) = [Consumer(groups, "ann")]
        await enter_together(ann)
        rows = [Commit("events", 0, 70), Commit("events", 1, 10)]
        await groups.commit("readers", rows, member_id=ann.member_id, generation=1)
        assert await groups.lag("readers") == [
            Lag("events", 0, 70, 0, 100, 30),
            Lag("events", 1, 10, 40, 100, 60),
            Lag("events", 2, None, 0, 10, None),
        ]
        with pytest.raises(GroupNotFound):
            await groups.lag("strangers")


async def test_a_log_of_a_later_version_is_refused_and_left_alone(machine: Machine) -> None:
    runtime = machine.start()
    log = await DiskLog.open(runtime, FOLDER, LOG)
    batch = record.encode([(b"\x92\x09\xa1a", b"")], at_ms=0)
    with log.reserve(len(batch)) as space:
        log.append(batch, space)
    await log.close()
    with pytest.raises(UnknownOffsetRecord):
        await Offsets.open(runtime, FOLDER, OFFSETS)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 1_000)),
        st.tuples(st.just("forget"), st.sampled_from("abc"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("drop"), st.sampled_from("abc"), st.just(0), st.just(0)),
        st.tuples(st.just("compact"), st.just(""), st.just(0), st.just(0)),
        st.tuples(st.sampled_from(["reopen", "power cut"]), st.just(""), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=30)
@given(steps)
def test_what_was_committed_is_what_is_found_after_any_restart(steps: list[tuple[str, str, int, int]]) -> None:
    machine = Machine(seed=1)
    expected: dict[str, dict[tuple[str, int], int]] = {}

    async def process(rest: list[tuple[str, str, int, int]]) -> int:
        offsets = await Offsets.open(machine.start(), FOLDER, _EAGER)
        found = {group: {place: kept.offset for place, kept in offsets.of(group).items()} for group in offsets.groups()}
        assert found == {group: rows for group, rows in expected.items() if rows}
        assert offsets.count == sum(len(rows) for rows in expected.values())
        for done, (verb, group, partition, offset) in enumerate(rest, 1):
            place = ("events", partition)
            rows = expected.setdefault(group, {})
            if verb == "commit":
                rows[place] = offset
                offsets.commit(group, {place: CommittedOffset(offset, -1, "m" * (offset % 90), 0)})
            elif verb == "forget":
                rows.pop(place, None)
                offsets.forget(group, [place])
            elif verb == "drop":
                rows.clear()
                offsets.drop(group)
            elif verb == "compact":
                await offsets.compact_if_due()
            else:
                await (offsets.close() if verb == "reopen" else offsets.durable())
                return done
            await offsets.durable()
        return len(rest)

    left = [*steps, ("power cut", "", 0, 0)]
    while left:
        done = simulate(partial(process, left))
        (machine.kill if left[done - 1][0] == "reopen" else machine.power_cut)()
        left = left[done:]


_EAGER = OffsetsSettings(log=LOG, compact_bytes_min=1, compact_times=2)
