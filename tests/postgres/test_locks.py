"""Locks of the store are its own: a role that may only connect blocks nothing, and a store that waits logs for whom."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import count

import psycopg
import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.errors import QueueNotFound
from penstock.store.postgres.database import PostgresSettings, Timing
from penstock.store.postgres.errors import BriefWaits, Locked
from penstock.store.postgres.store import PostgresStore
from penstock.telemetry import STORE_WAITS, LogEvent
from tests.postgres.schemas import empty_schema
from tests.postgres.servers import shared_server
from tests.postgres.waiting import until_waited_for
from tests.simulation.clock import SimClock, SimDice

pytestmark = pytest.mark.real_time
SEEDS = count()
# Every advisory lock the store and the client ever took by a name that any role can compute.
NAMES = ("queue", "room", "floor", "name", "range", "alone", "leader", "migrate", "seen")


@asynccontextmanager
async def opened(settings: PostgresSettings) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(
        settings, clock=SimClock(), dice=SimDice(next(SEEDS)), has_upkeep=False
    ) as store:
        yield store


async def test_a_stranger_with_every_advisory_lock_holds_up_no_verb_and_no_start() -> None:
    settings = PostgresSettings(url=shared_server().new_database())
    async with await psycopg.AsyncConnection.connect(settings.url, autocommit=True) as stranger, asyncio.timeout(60):
        for name in NAMES:
            for number in range(4):
                await stranger.execute("SELECT pg_advisory_lock(hashtext(%s), %s)", (f"penstock.{name}", number))
            await stranger.execute("SELECT pg_advisory_lock(hashtext(%s))", (f"penstock.{name}",))
        async with opened(settings) as store:
            await store.create("orders", QueueSettings(size_max=5))
            await store.send("orders", Drafts(bodies=[b"a", b"b"], groups=[b"x", b"y"]))
            delivery = await store.lease("orders", want=2)
            assert delivery is not None
            await store.ack("orders", delivery.receipts())
            await store.change("orders", QueueSettings(size_max=6))
            assert await store.purge("orders") == 0
            assert await store._leadership._leads()
            await store.delete("orders")


async def test_a_stranger_who_calls_without_end_wakes_no_more_than_those_who_wait() -> None:
    settings = PostgresSettings(url=shared_server().new_database())
    async with (
        await psycopg.AsyncConnection.connect(settings.url, autocommit=True) as stranger,
        asyncio.timeout(60),
        await PostgresStore.open(settings, clock=SimClock(), dice=SimDice(next(SEEDS))) as store,
    ):
        await store.create("orders", QueueSettings())
        await store.describe("orders")
        woken: list[str] = []
        is_called = asyncio.Event()

        def wake(queue: str) -> None:
            woken.append(queue)
            if queue == "the-end":
                is_called.set()

        store.watch(wake)
        for payload in ("repeat('orders,', 1100) || number", "'*'", "'orders' || number"):
            call = f"SELECT pg_notify('penstock', '0:' || {payload}) FROM generate_series(1, 1000) AS number"
            await stranger.execute(call.encode())
        # It may be in the same moment as what came before, and then everybody is woken.
        while not is_called.is_set():
            await stranger.execute("NOTIFY penstock, '0:the-end'")
            with suppress(TimeoutError):
                await asyncio.wait_for(is_called.wait(), 0.1)
        assert "orders" in woken
        assert len(woken) < 10_000


@pytest.mark.parametrize("role", ["stranger", "reader"])
async def test_a_role_without_the_right_to_write_cannot_take_the_lock_of_a_queue(role: str) -> None:
    settings = PostgresSettings(url=shared_server().new_database())
    name = f"locks_{role}"
    async with opened(settings) as store, await psycopg.AsyncConnection.connect(settings.url) as stranger:
        await store.create("orders", QueueSettings())
        await stranger.execute(f"CREATE ROLE {name}".encode())
        if role == "reader":
            await stranger.execute(f"GRANT USAGE ON SCHEMA penstock TO {name}".encode())
            await stranger.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA penstock TO {name}".encode())
        await stranger.execute(f"SET SESSION AUTHORIZATION {name}".encode())
        for statement in (
            "SELECT penstock.enter_alone(1, 1)",
            "LOCK TABLE penstock.server IN ROW EXCLUSIVE MODE",
            "SELECT 1 FROM penstock.queue_lock FOR UPDATE",
            "ALTER SEQUENCE penstock.lane_1_0 OWNED BY NONE",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                async with stranger.transaction():
                    await stranger.execute(statement.encode())
        await stranger.rollback()


async def test_a_verb_that_waited_for_the_deletion_of_its_queue_says_that_there_is_none() -> None:
    settings = empty_schema()
    async with opened(settings) as store, await psycopg.AsyncConnection.connect(settings.url) as other:
        await store.create("orders", QueueSettings())
        known = await store._cache.get("orders")
        delete = b"SELECT penstock.delete_queue(%s, %s, 0, 1, false, 0::smallint, 9, 9, 1)"
        await other.execute(delete, (known.number, known.version))
        sends = asyncio.create_task(store.send("orders", Drafts(bodies=[b"a"])))  # noqa: TID251 - awaited below.
        await until_waited_for(other)
        await other.commit()
        with pytest.raises(QueueNotFound):
            await sends


async def test_a_lock_that_others_keep_is_refused_with_a_reason_and_nothing_is_done() -> None:
    settings = replace(empty_schema(), timing=Timing(lock="50ms"))
    async with opened(settings) as store:
        await store.create("orders", QueueSettings())
        async with await psycopg.AsyncConnection.connect(settings.url) as other:
            await other.execute("LOCK TABLE penstock.ready IN EXCLUSIVE MODE")
            with pytest.raises(Locked, match="transaction that was left open"):
                await store.send("orders", Drafts(bodies=[b"a"]))
        assert (await store.counts("orders")).live == 0


async def test_a_start_notes_which_process_it_waits_for() -> None:
    settings = replace(empty_schema(), timing=Timing(opening=BriefWaits("50ms", pause_s=0.01)))
    logged: list[dict[str, object]] = []
    url = f"{settings.url}&application_name=somebodys_report"
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute("LOCK TABLE penstock.server IN EXCLUSIVE MODE")
        released, pid = asyncio.Event(), other.info.backend_pid

        def log_event(event: LogEvent, /, **fields: object) -> None:
            assert event is STORE_WAITS
            logged.append(fields)
            released.set()

        opening = asyncio.create_task(  # noqa: TID251 - awaited below.
            PostgresStore.open(settings, clock=SimClock(), dice=SimDice(), has_upkeep=False, log_event=log_event)
        )
        async with asyncio.timeout(60):
            await released.wait()
        await other.rollback()
        async with await opening:
            pass
    held = logged[0]
    assert held["pid"] == pid
    assert (held["table"], held["mode"]) == ("penstock.server", "ExclusiveLock")
    assert held["application"] == "somebodys_report"
