"""Topics and groups over PostgreSQL where something is lost: a standby, the primary, a coordinator that is not dead."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

import psycopg
import pytest

from penstock.broker.consumer_groups import BadGroupName, Commit, GroupNotFound, GroupState, NotCoordinator, open_groups
from penstock.broker.topics import FetchOne, Topics
from penstock.runtime.memory import memory_runtime
from penstock.runtime.system import SystemClock, SystemDice
from penstock.store.errors import OutcomeUnknown, StoreUnreachable
from penstock.store.postgres.database import PostgresSettings, Timing
from penstock.store.postgres.shared_tables import SERVING, Identity, Node
from penstock.store.postgres.store import PostgresStore
from penstock.streams.interface import ACKS_LEADER
from penstock.streams.postgres.offset_store import PostgresOffsets
from penstock.streams.postgres.topic_store import PostgresTopics
from penstock.telemetry import LogEvent
from tests.cluster.pair import Pair
from tests.conformance.topics import read
from tests.postgres.schemas import empty_schema
from tests.streams.grouping import SETTINGS, Consumer
from tests.streams.small import values
from tests.waiting import eventually

pytestmark = pytest.mark.real_time

_TIMEOUT_S = 0.5
_SECONDS_MAX = 60.0
FETCH = [FetchOne("events", 0, 0, 1_000_000)]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair() as found:
        yield found


@asynccontextmanager
async def served(settings: PostgresSettings) -> AsyncIterator[tuple[PostgresStore, Topics]]:
    runtime = replace(memory_runtime(), clock=SystemClock())
    async with (
        await PostgresStore.open(settings, clock=SystemClock(), dice=SystemDice()) as store,
        Topics(runtime, await PostgresTopics.open(store, SystemDice(), runtime.timings)) as topics,
    ):
        yield store, topics


def settings_of(url: str) -> PostgresSettings:
    return PostgresSettings(url=url, commit_timeout_s=_TIMEOUT_S, timing=Timing(beat_s=0.05))


async def end_of(topics: Topics) -> int:
    (found,) = await topics.fetch(FETCH, bytes_max=1_000_000, bytes_min=0)
    return found.high_watermark


async def until_served(store: PostgresStore) -> None:
    await eventually(lambda: not store.commits.refusal, within_s=_SECONDS_MAX)


async def test_a_record_is_acknowledged_by_as_many_as_it_asks_for_and_read_when_a_standby_has_it(pair: Pair) -> None:
    async with served(settings_of(pair.new_database())) as (store, topics):
        await eventually(lambda: store.commits.standbys_needed == 1, within_s=_SECONDS_MAX)
        await topics.streams.create("events")
        await topics.produce("events", 0, values(b"all"))
        pair.pause_standby()
        leader = topics.append("events", 0, values(b"leader"), acks=ACKS_LEADER)
        assert (await topics.settled("events", 0, leader)).base_offset == 1
        # The primary has it; nobody reads yet what a promotion would lose.
        assert await end_of(topics) == 1
        with pytest.raises(OutcomeUnknown):
            await topics.produce("events", 0, values(b"unknown"))
        pair.resume_standby()
        await until_served(store)
        # It is there after all. A producer with sequences would have sent it again, and found out.
        assert (await topics.produce("events", 0, values(b"later"))).base_offset == 3
        assert await end_of(topics) == 4


async def test_a_promotion_takes_nothing_back_that_was_read_or_confirmed(pair: Pair) -> None:
    async with served(settings_of(pair.new_database())) as (store, topics):
        await eventually(lambda: store.commits.standbys_needed == 1, within_s=_SECONDS_MAX)
        await topics.streams.create("events")
        for number in range(10):
            await topics.produce("events", 0, values(b"%d" % number))
        pair.pause_standby()
        lost = topics.append("events", 0, values(b"lost"), acks=ACKS_LEADER)
        assert (await topics.settled("events", 0, lost)).base_offset == 10
        assert await end_of(topics) == 10
        pair.primary.kill()
        pair.resume_standby()
        pair.standby.promote()
        pair.follow()

        after = await eventually(lambda: _produced(topics), within_s=_SECONDS_MAX)
        # The last one may have been on its way to the standby already. If it was not, its offset is another record's
        # now, and no consumer is confused: none had seen it.
        assert after in (10, 11)
        found = [each.value for each in await read(topics)]
        assert found[:10] == [b"%d" % number for number in range(10)]
        assert found[10:] == ([b"after"] if after == 10 else [b"lost", b"after"])


async def _produced(topics: Topics) -> int | None:
    try:
        return (await topics.produce("events", 0, values(b"after"))).base_offset
    except StoreUnreachable:
        return None


@asynccontextmanager
async def two_coordinators() -> AsyncIterator[tuple[PostgresSettings, list[Consumer]]]:
    """Two servers, each with a consumer that speaks to it."""
    database = empty_schema()
    async with AsyncExitStack() as stack:
        consumers = []
        for name in ("one", "two"):
            store, topics = await stack.enter_async_context(served(database))
            identity = Identity(name, SystemDice().token(), "127.0.0.1:1")
            node = Node(identity=identity, address="", state=lambda: SERVING, drain=lambda: None)
            await stack.enter_async_context(store.nodes.presenting(node, _note))
            if name == "one":
                await topics.streams.create("events")
            await topics.refresh()
            offsets = PostgresOffsets(store.database, topics.streams, identity)
            runtime = replace(memory_runtime(), clock=SystemClock())
            groups = await stack.enter_async_context(open_groups(runtime, offsets, topics, settings=SETTINGS))
            await eventually(partial(_is_heard, database, name), within_s=_SECONDS_MAX)
            consumers.append(Consumer(groups, name))
        yield database, consumers


def _note(event: LogEvent, /, **_fields: object) -> None:
    pass


def _is_heard(database: PostgresSettings, name: str) -> bool:
    with psycopg.connect(database.url) as connection:
        return (
            connection.execute("SELECT 1 FROM penstock.node WHERE name = %s AND kafka <> ''", (name,)).fetchone()
            is not None
        )


def _take_for_dead(database: PostgresSettings, name: str) -> None:
    """Make a server one that has not been heard for long, although it runs."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("UPDATE penstock.node SET incarnation = 0 WHERE name = %s", (name,))


async def test_one_server_coordinates_a_group_and_the_others_name_it() -> None:
    async with two_coordinators() as (_, (ann, bob)):
        await ann.enter()
        with pytest.raises(NotCoordinator) as refused:
            await bob.groups.commit("readers", [Commit("events", 0, 1)])
        assert refused.value.node == "one"
        # It can be looked at everywhere.
        assert (await bob.groups.describe("readers")).state is GroupState.STABLE
        assert [each.group for each in await bob.groups.listed()] == ["readers"]
        assert [each.group for each in await bob.groups.listed(is_own=True)] == []


async def test_a_coordinator_that_was_taken_for_dead_changes_nothing_any_more() -> None:
    async with two_coordinators() as (database, (ann, bob)):
        await ann.enter()
        await ann.groups.commit("readers", [Commit("events", 0, 5)], member_id=ann.member_id, generation=ann.generation)
        _take_for_dead(database, "one")
        await bob.groups.commit("readers", [Commit("events", 0, 7)], member_id=ann.member_id, generation=ann.generation)
        with pytest.raises(NotCoordinator):
            await ann.groups.commit(
                "readers", [Commit("events", 0, 6)], member_id=ann.member_id, generation=ann.generation
            )
        with pytest.raises(NotCoordinator):
            await ann.groups.committed("readers", None)
        (kept,) = await bob.groups.committed("readers", None)
        assert kept.offset == 7


async def test_an_offset_of_a_deleted_topic_is_not_there_for_another_of_its_name() -> None:
    async with two_coordinators() as (_, (ann, bob)):
        await ann.groups.commit("readers", [Commit("events", 0, 5)])
        topics = bob.groups._partitions
        assert isinstance(topics, Topics)
        await topics.streams.delete("events")
        await topics.streams.create("events")
        assert await ann.groups.committed("readers", None) == []
        await ann.groups.coordinator.delete("readers")
        assert await bob.groups.listed() == []


async def test_what_a_client_adds_to_an_offset_comes_back_to_the_letter() -> None:
    async with two_coordinators() as (_, (ann, _bob)):
        said = "four, said Ä\0"
        await ann.groups.commit("readers", [Commit("events", 0, 4, metadata=said)])
        (kept,) = await ann.groups.committed("readers", None)
        assert (kept.offset, kept.metadata) == (4, said)
        with pytest.raises(BadGroupName):
            await ann.groups.commit("no\0group", [Commit("events", 0, 4)])
        with pytest.raises(GroupNotFound):
            await ann.groups.describe("no\0group")


async def test_a_server_that_is_started_again_has_its_groups_at_once() -> None:
    async with two_coordinators() as (database, (ann, _bob)):
        await ann.groups.commit("readers", [Commit("events", 0, 4)])
        async with served(database) as (store, topics):
            offsets = PostgresOffsets(store.database, topics.streams, Identity("one", SystemDice().token()))
            runtime = replace(memory_runtime(), clock=SystemClock())
            async with open_groups(runtime, offsets, topics, settings=SETTINGS) as again:
                assert [each.offset for each in await again.committed("readers", None)] == [4]
                with pytest.raises(NotCoordinator):
                    await ann.groups.commit("readers", [Commit("events", 0, 5)])
                assert [each.offset for each in await again.committed("readers", None)] == [4]
