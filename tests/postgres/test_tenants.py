"""Groups of standard queues on PostgreSQL: their time is counted for each ack, and a lease reads little."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from penstock.contract.queue_settings import DAY_MS, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.postgres.database import Database, PostgresSettings
from penstock.store.postgres.store import PostgresStore
from tests.postgres.rooms import wrong_held
from tests.postgres.schemas import empty_schema
from tests.simulation.clock import SimClock, SimDice

pytestmark = pytest.mark.real_time

WAITING = 10_000
# For each row that is locked, a block or two. All that wait are in some hundreds.
BLOCKS_MOST = 80
# To pass over a noisy group, a stretch of a thousand rows is looked through at the front, and one further on.
BLOCKS_MOST_TO_PASS = 600


@asynccontextmanager
async def opened(settings: PostgresSettings, clock: SimClock, seed: int = 0) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(settings, clock=clock, dice=SimDice(seed), may_migrate=False, has_upkeep=False)
    try:
        yield store
    finally:
        await store.close()


async def test_the_time_of_a_group_is_the_sum_of_what_all_stores_let_go_at_once() -> None:
    settings, clock = empty_schema(), SimClock()
    async with opened(settings, clock) as one, opened(settings, clock, seed=1) as other:
        await one.create("orders", QueueSettings(deliveries_max=0))
        await one.send("orders", Drafts(bodies=[b""] * 41, groups=[b"loud"] * 40 + [b"calm"]))
        held = [await store.lease("orders", want=1, lease_ms=60_000) for _ in range(10) for store in (one, other)]
        clock.advance_ms(1_000)
        acks = [store.ack("orders", each.receipts()) for each in held if each for store in (one, other)]
        await asyncio.gather(*acks)
        with psycopg.connect(settings.url) as connection:
            rows = connection.execute("SELECT grp, sum(taken_ms) FROM penstock.tenant GROUP BY grp").fetchall()
        assert await wrong_held(settings) == []
        # One of the twenty was the other group's last: only the sum of all has its second.
        assert {bytes(group): taken_ms for group, taken_ms in rows} == {b"": 20_000, b"loud": 19_000}
        assert (await other.counts("orders")).noisy_groups == 1
        assert await one.purge("orders") == 21
        assert (await other.counts("orders")).noisy_groups == 0


async def test_what_a_group_holds_is_counted_without_waiting_for_others_and_becomes_one_row_again() -> None:
    settings, clock = empty_schema(), SimClock()
    async with opened(settings, clock) as store:
        await store.create("orders", QueueSettings(deliveries_max=0))
        await store.send("orders", Drafts(bodies=[b""] * 9, groups=[b"loud"] * 9))
        with psycopg.connect(settings.url) as connection:
            held = [await store.lease("orders", want=3)]
            connection.execute("SELECT FROM penstock.tenant_held FOR UPDATE")
            held.append(await store.lease("orders", want=3))
            assert await wrong_held(settings) == []
            connection.rollback()
            held.append(await store.lease("orders", want=3))
            rows = connection.execute("SELECT held, digits FROM penstock.tenant_held").fetchall()
            assert rows == [(9, 4)]
            connection.rollback()
            for each in held:
                assert each is not None
                await store.ack("orders", each.receipts())
            assert connection.execute("SELECT held, digits FROM penstock.tenant_held").fetchall() == [(0, 0)]
            connection.rollback()
            clock.advance_ms(3_600_000)
            await store.tidy()
            assert connection.execute("SELECT FROM penstock.tenant_held").fetchall() == []


async def blocks_looked_at(connection: psycopg.AsyncConnection, now_ms: int) -> int:
    """How many blocks PostgreSQL looks at to find the next ten messages of the first queue."""
    text = (
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) WITH noisy AS (SELECT * FROM penstock.noisy(1, %s)) "
        "SELECT * FROM penstock.pick(1, 0::smallint, 10, 0, 0, penstock.first_turn(1, 0::smallint, NULL), "
        "(SELECT array_agg(grp) FROM noisy), (SELECT array_agg(held) FROM noisy))"
    )
    row = await (await connection.execute(text.encode(), (now_ms,))).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize("groups", [1, 1_000])
@pytest.mark.parametrize("is_noisy", [False, True], ids=["all quiet", "one noisy"])
async def test_to_find_the_next_ten_messages_is_not_to_look_at_all_that_wait(groups: int, is_noisy: bool) -> None:
    settings, clock = empty_schema(), SimClock()
    connection = await Database(settings).connect()
    async with opened(settings, clock) as store, connection:
        await store.create("orders", QueueSettings(deliveries_max=0, noisy_leased_min=3))
        # What earlier tests have left is not meant.
        await connection.execute(
            "VACUUM penstock.ready, penstock.marked, penstock.leased, penstock.lease, penstock.tenant"
        )
        # Plans are made now, while nothing is there that could tell a good one, and kept.
        await blocks_looked_at(connection, store.now_ms())
        for first in range(0, WAITING, 1_000):
            names = [b"%d" % (number % groups) for number in range(first, first + 1_000)]
            await store.send("orders", Drafts(bodies=[b""] * 1_000, tiers=bytes(1_000), groups=names))
        if is_noisy:
            await store.send("orders", Drafts(bodies=[b""] * 40, tiers=bytes(40), groups=[b"loud"] * 40))
            assert await store.lease("orders", want=30) is not None
        most = BLOCKS_MOST_TO_PASS if is_noisy else BLOCKS_MOST
        # The first time the catalogue is read, and whenever another session has changed it or made new statistics.
        found = [await blocks_looked_at(connection, store.now_ms()) for _ in range(4)]
        assert min(found) < most


async def test_a_queue_of_groups_that_was_idle_for_days_goes_on() -> None:
    """What is halved for each minute of days is less than PostgreSQL can count, and it says so."""
    async with opened(empty_schema(), clock := SimClock()) as store:
        await store.create("orders", QueueSettings(deliveries_max=0))
        await store.send("orders", Drafts(bodies=[b""] * 3, groups=[b"loud"] * 3))
        for _ in range(2):
            delivery = await store.lease("orders", want=1)
            assert delivery is not None
            clock.advance_ms(1_000)
            await store.ack("orders", delivery.receipts())
            clock.advance_ms(2 * DAY_MS)
        assert await store.lease("orders", want=1, lease_ms=1_000) is not None
        clock.advance_ms(2 * DAY_MS)
        again = await store.lease("orders", want=1)
        assert again is not None, "it lapsed days ago"
        assert (await store.counts("orders")).leased == 1
