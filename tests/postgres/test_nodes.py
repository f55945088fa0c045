"""The servers of a database know of each other, and one name is one server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from penstock.runtime.system import SystemClock, SystemDice
from penstock.store.postgres.shared_tables import (
    DRAINING,
    SERVING,
    STOPPED,
    Identity,
    Node,
    NodeRow,
    drain_node,
    list_nodes,
)
from penstock.store.postgres.store import PostgresStore
from penstock.telemetry import LogEvent
from tests.postgres.schemas import empty_schema
from tests.waiting import eventually

pytestmark = pytest.mark.real_time


@dataclass
class Presented:
    """A server that is presented, and what it was told."""

    state: str = SERVING
    drains: int = 0
    events: list[str] = field(default_factory=list)

    def drain(self) -> None:
        self.drains += 1

    @asynccontextmanager
    async def at(self, store: PostgresStore, name: str) -> AsyncIterator[None]:
        node = Node(
            identity=Identity(name, SystemDice().token()), address="http://a:8080", state=lambda: self.state,
            drain=self.drain,
        )  # fmt: skip
        async with store.nodes.presenting(node, self.note):
            yield

    def note(self, event: LogEvent, /, **_fields: object) -> None:
        self.events.append(event.name)


@asynccontextmanager
async def opened() -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(
        empty_schema(), clock=SystemClock(), dice=SystemDice(), may_migrate=False, has_upkeep=False
    ) as store:
        async with store._database.transaction() as connection:
            await connection.execute("DELETE FROM penstock.node")
        yield store


async def _seen(store: PostgresStore) -> dict[str, NodeRow]:
    async with store._database.transaction() as connection:
        return {row.name: row for row in await list_nodes(connection, "penstock")}


async def test_a_server_is_seen_while_it_serves_and_as_stopped_afterwards() -> None:
    async with opened() as store:
        server = Presented()
        async with server.at(store, "one"):
            await eventually(lambda: _is(store, "one", SERVING))
            assert (await _seen(store))["one"].is_live
            server.state = DRAINING
            await eventually(lambda: _is(store, "one", DRAINING))
        row = (await _seen(store))["one"]
        assert (row.state, row.is_live, row.condition) == (STOPPED, False, STOPPED)


async def _is(store: PostgresStore, name: str, state: str) -> bool:
    row = (await _seen(store)).get(name)
    return row is not None and row.state == state


async def test_a_server_that_is_not_heard_is_lost() -> None:
    async with opened() as store, Presented().at(store, "one"):
        await eventually(lambda: _is(store, "one", SERVING))
        async with store._database.transaction() as connection:
            await connection.execute("UPDATE penstock.node SET beat_at = beat_at - interval '1 hour', name = 'gone'")
        assert (await _seen(store))["gone"].condition == "lost"


async def test_an_operator_drains_a_server_by_its_name() -> None:
    async with opened() as store:
        server = Presented()
        async with server.at(store, "one"):
            await eventually(lambda: _is(store, "one", SERVING))
            async with store._database.transaction() as connection:
                assert await drain_node(connection, "penstock", "one")
                assert not await drain_node(connection, "penstock", "two")
            await eventually(lambda: server.drains)
        # One that is started again is not drained again.
        again = Presented()
        async with again.at(store, "one"):
            await eventually(lambda: _is(store, "one", SERVING))
            assert not (await _seen(store))["one"].is_to_drain
        assert (server.drains, again.drains) == (1, 0)


async def test_a_name_stays_with_the_server_that_has_it_and_the_other_one_says_so() -> None:
    async with opened() as store:
        first, second = Presented(), Presented(state=DRAINING)
        async with first.at(store, "one"):
            await eventually(lambda: _is(store, "one", SERVING))
            async with second.at(store, "one"):
                await eventually(lambda: second.events)
            # Nor does the other one end it.
            assert await _is(store, "one", SERVING)
        assert (first.events, second.events) == ([], ["node.name_taken"])
