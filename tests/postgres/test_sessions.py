"""Calls on a connection of a store: cancelled, refused, larger than a socket takes at once, on one that was ended."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg
import pytest

from penstock.contract.limits import BODY_BYTES_MAX
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.interface import EscalationOrder
from penstock.store.postgres.database import TIMING, PostgresSettings, Timing
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema
from tests.postgres.waiting import until_waited_for
from tests.simulation.clock import SimClock, SimDice

pytestmark = pytest.mark.real_time


@asynccontextmanager
async def one_connection(timing: Timing = TIMING) -> AsyncIterator[tuple[PostgresStore, PostgresSettings]]:
    settings = replace(empty_schema(), connections_max=1, timing=timing)
    store = await PostgresStore.open(settings, clock=SimClock(), dice=SimDice(0), may_migrate=False, has_upkeep=False)
    async with store:
        await store.create("orders", QueueSettings())
        yield store, settings


async def test_a_call_that_is_cancelled_is_cancelled_in_the_database_too() -> None:
    # A store that gives up leaves it to the database to go on with the call.
    async with (
        one_connection(Timing(cancel_s_max=60.0)) as (store, settings),
        await psycopg.AsyncConnection.connect(settings.url) as other,
    ):
        await store.send("orders", Drafts(bodies=[b"a"]))
        await other.execute(f"LOCK TABLE {settings.schema}.ready".encode())
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(store.send("orders", Drafts(bodies=[b"b"])))
            await until_waited_for(other)
            sending.cancel()
        assert sending.cancelled()
        await other.rollback()
        # The connection goes on, and nothing of the call was done.
        assert (await store.counts("orders")).ready[2] == 1


async def test_a_function_that_refuses_its_first_call_is_prepared_all_the_same() -> None:
    async with (
        one_connection() as (store, settings),
        PostgresStore(settings, clock=SimClock(), dice=SimDice(1)) as stranger,
    ):
        # Known to it as it was, so that its first send is refused, and made again.
        await stranger._cache.get("orders")
        await store.change("orders", QueueSettings(lease_ms=1_000))
        assert await stranger.send("orders", Drafts(bodies=[b"a"]))


async def test_a_connection_goes_on_after_a_transaction_on_it_was_rolled_back() -> None:
    async with (
        one_connection() as (store, settings),
        PostgresStore(settings, clock=SimClock(), dice=SimDice(1)) as stranger,
    ):
        ids = list(await store.send("orders", Drafts(bodies=[b"a"])))
        # Often enough for the driver to have statements prepared, all of which it forgets with a rollback: ours, too.
        for tier in range(4):
            await store.escalate("orders", ids, EscalationOrder(tier=tier, actor="ada", reason=""))
        await stranger.change("orders", QueueSettings(lease_ms=1_000))
        # Refused, since the queue is not what it was, and made again.
        await store.purge("orders")
        await store.send("orders", Drafts(bodies=[b"b"]))
        assert await store.lease("orders", want=2) is not None


async def test_a_send_larger_than_a_socket_takes_at_once_arrives_whole() -> None:
    bodies = [bytes([row]) * BODY_BYTES_MAX for row in range(12)]
    async with one_connection() as (store, _):
        await store.send("orders", Drafts(bodies=bodies))
        found: list[bytes] = []
        while delivery := await store.lease("orders", want=100):
            found += [bytes(body) for body in delivery.bodies]
    assert found == bodies


async def test_a_connection_that_the_server_has_ended_is_not_used_again() -> None:
    async with one_connection() as (store, settings), await psycopg.AsyncConnection.connect(settings.url) as other:
        await store.send("orders", Drafts(bodies=[b"a"]))
        await other.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND query LIKE %s",
            (f"%{settings.schema}.send_plain%",),
        )
        # A lease that was lost on its way would have been counted.
        delivery = await store.lease("orders", want=1)
        assert delivery is not None
        assert list(delivery.deliveries) == [1]


async def test_what_is_not_yet_old_can_be_leased_while_the_old_is_looked_for() -> None:
    async with one_connection() as (store, settings), await psycopg.AsyncConnection.connect(settings.url) as other:
        await store.send("orders", Drafts(bodies=[b"a", b"b"]))
        known = await store._cache.get("orders")
        now_ms = store.now_ms()
        for name, arguments in (
            ("expire", (known.number, known.version, now_ms, now_ms - 1, 100, False, 1, 1, [0] * 5)),
            ("age", (known.number, now_ms, 2, 1, 100, 0)),
        ):
            kinds = {9: "int, int8, int8, int8, int, bool, int2, int, int8[]", 6: "int, int8, int2, int8, int, int8"}[
                len(arguments)
            ]
            places = ", ".join(f"%s::{kind.strip()}" for kind in kinds.split(","))
            await other.execute(f"SELECT {settings.schema}.{name}({places})".encode(), arguments)
        delivery = await store.lease("orders", want=1)
        await other.rollback()
        assert delivery is not None
        assert bytes(delivery.bodies[0]) == b"a"
