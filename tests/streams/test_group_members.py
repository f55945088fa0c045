"""Members of groups in time: who waits, who is given up, what is left after a restart."""

import asyncio

import pytest

from penstock.broker.consumer_groups import (
    BadGroupName,
    BadSessionTimeout,
    FencedInstance,
    GroupFull,
    GroupNotFound,
    GroupsStopping,
    GroupState,
    IllegalGeneration,
    Leaver,
    RebalanceInProgress,
    TooManyGroups,
    UnknownMember,
)
from penstock.core.consumer_group.members import GroupSettings
from penstock.log.interface import LogFull
from penstock.streams.group_coordinator import CoordinatorSettings
from tests.simulation.loop import simulate
from tests.simulation.world import Machine
from tests.streams.grouping import Consumer, enter_together, groups_on
from tests.waiting import elapse

DELAYED = CoordinatorSettings(group=GroupSettings(initial_delay_ms=200))


async def test_members_that_start_together_share_the_first_generation(machine: Machine) -> None:
    async with groups_on(machine, settings=DELAYED) as groups:
        consumers = [Consumer(groups, name) for name in ("ann", "bob", "eve")]
        assert await enter_together(*consumers) == [b"ann", b"bob", b"eve"]
        assert {each.generation for each in consumers} == {1}
        described = await groups.describe("readers")
        assert (described.state, described.protocol, described.generation) == (GroupState.STABLE, "range", 1)
        assert [(each.client_id, each.client_host, each.assignment) for each in described.members] == [
            ("ann", "127.0.0.1", b"ann"),
            ("bob", "127.0.0.1", b"bob"),
            ("eve", "127.0.0.1", b"eve"),
        ]


async def test_members_are_called_when_one_comes(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        ann, bob = Consumer(groups, "ann"), Consumer(groups, "bob")
        assert await ann.enter() == b"ann"
        async with asyncio.TaskGroup() as tasks:
            entering = tasks.create_task(bob.enter())
            await elapse(0.1)
            with pytest.raises(RebalanceInProgress):
                await ann.beat()
            assert await ann.enter() == b"ann"
        assert entering.result() == b"bob"
        await ann.beat()


async def test_a_member_that_falls_silent_is_given_up_on_time(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        ann = Consumer(groups, "ann")
        await ann.enter()
        await elapse(9.9)
        await ann.beat()
        await elapse(10.1)
        assert (await groups.describe("readers")).state is GroupState.EMPTY
        with pytest.raises(UnknownMember):
            await ann.beat()


async def test_a_consumer_that_goes_while_it_waits_delays_no_other(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        ann, bob = Consumer(groups, "ann"), Consumer(groups, "bob")
        await ann.enter()
        async with asyncio.TaskGroup() as tasks:
            entering = tasks.create_task(bob.enter())
            await elapse(0.1)
            entering.cancel()
        async with asyncio.timeout(1):
            assert await ann.enter() == b"ann"
        assert [each.client_id for each in (await groups.describe("readers")).members] == ["ann"]


async def test_leaving_is_answered_for_each_and_durable(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        ann = Consumer(groups, "ann")
        await ann.enter()
        refusals = await groups.coordinator.leave("readers", [Leaver("nobody"), Leaver(ann.member_id)])
        assert [type(refusal) for refusal in refusals] == [UnknownMember, type(None)]
        assert [type(each) for each in await groups.coordinator.leave("strangers", [Leaver("nobody")])] == [
            UnknownMember
        ]
    async with groups_on(machine.runtime or machine) as groups:
        described = await groups.describe("readers")
        assert (described.state, described.generation, described.members) == (GroupState.EMPTY, 2, ())


def test_members_survive_a_restart_of_the_broker(machine: Machine) -> None:
    async def before() -> Consumer:
        async with groups_on(machine) as groups:
            ann = Consumer(groups, "ann")
            await ann.enter()
            return ann

    async def after(ann: Consumer) -> None:
        async with groups_on(machine) as groups:
            ann.groups = groups
            await ann.beat()
            assert (await ann.sync()).assignment == b"ann"
            with pytest.raises(IllegalGeneration):
                await groups.coordinator.heartbeat("readers", ann.member_id, None, 0)
            # One that does not come back is given up after its session.
            await elapse(10.1)
            assert (await groups.describe("readers")).state is GroupState.EMPTY

    ann = simulate(before)
    machine.kill()
    simulate(lambda: after(ann))


async def test_a_static_member_that_is_back_is_kept_in_its_generation(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        old = Consumer(groups, "old", instance_id="i1")
        await old.enter()
        new = Consumer(groups, "new", instance_id="i1")
        joined = await new.join()
        assert (joined.generation, (await new.sync()).assignment) == (1, b"i1")
        with pytest.raises(FencedInstance):
            await old.beat()
    async with groups_on(machine.runtime or machine) as groups:
        new.groups = groups
        await new.beat()
        (refusal,) = await groups.coordinator.leave("readers", [Leaver(instance_id="i1")])
        assert refusal is None


async def test_an_assignment_that_cannot_be_kept_is_not_given(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        ann = Consumer(groups, "ann")
        await ann.join()
        machine.disk.capacity_bytes = machine.disk.used_bytes()
        large = {ann.member_id: b"x" * 100_000}
        with pytest.raises(LogFull):
            await ann.sync(large)
        assert (await groups.describe("readers")).state is GroupState.COMPLETING
        machine.disk.capacity_bytes = None
        assert len((await ann.sync(large)).assignment) == 100_000


async def test_those_who_wait_are_sent_away_when_the_server_stops(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        ann, bob = Consumer(groups, "ann"), Consumer(groups, "bob")
        await ann.enter()
        async with asyncio.TaskGroup() as tasks:
            entering = tasks.create_task(_refusal(bob))
            await elapse(0.1)
            groups.coordinator.stop()
        assert isinstance(entering.result(), GroupsStopping)
        with pytest.raises(GroupsStopping):
            await ann.join()


async def _refusal(consumer: Consumer) -> BaseException | None:
    try:
        await consumer.join()
    except GroupsStopping as refusal:
        return refusal
    return None


async def test_a_group_that_was_never_joined_leaves_no_trace(machine: Machine) -> None:
    async with groups_on(machine, settings=CoordinatorSettings(groups_max=1)) as groups:
        late = Consumer(groups, "late", group="first")
        late.session_timeout_ms = 1
        with pytest.raises(BadSessionTimeout):
            await late.join()
        assert await groups.listed() == []
        ann = Consumer(groups, "ann", group="second")
        await ann.enter()
        with pytest.raises(TooManyGroups):
            await Consumer(groups, "bob", group="third").join()
        with pytest.raises(BadGroupName):
            await Consumer(groups, "bob", group="x" * 256).join()


async def test_there_is_a_limit_to_what_all_members_say_of_themselves(machine: Machine) -> None:
    settings = CoordinatorSettings(group=GroupSettings(initial_delay_ms=0), bytes_max=1_000)
    async with groups_on(machine, settings=settings) as groups:
        for _ in range(2):
            first, second = (Consumer(groups, "ann", group=group) for group in ("first", "second"))
            await first.join("x" * 400)
            with pytest.raises(GroupFull):
                await second.join("x" * 400)
            # What has gone leaves room.
            await groups.coordinator.leave("first", [Leaver(first.member_id)])
        await second.join("x" * 400)


async def test_groups_are_listed_by_the_state_they_are_in(machine: Machine) -> None:
    async with groups_on(machine) as groups:
        await Consumer(groups, "ann", group="stable").enter()
        await Consumer(groups, "bob", group="completing").join()
        assert [each.group for each in await groups.listed()] == ["completing", "stable"]
        assert [each.group for each in await groups.listed([GroupState.STABLE])] == ["stable"]
        with pytest.raises(GroupNotFound):
            await groups.describe("strangers")
