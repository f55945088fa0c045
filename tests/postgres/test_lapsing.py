"""Leases that end while another transaction has them locked, or many at once: none of their messages is left behind."""

import asyncio
from dataclasses import replace

import psycopg
import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.interface import EscalationOrder, Outcome
from penstock.store.postgres.database import PostgresSettings, Timing
from penstock.store.postgres.lease import ADVANCE_MOST
from penstock.store.postgres.queue_cache import FORGET_MS, HELD_MS, LATE_MS, LATER_MS, MORE_MS, CachedQueue, QueueRow
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema
from tests.postgres.waiting import until_waited_for
from tests.simulation.clock import SimClock, SimDice

pytestmark = pytest.mark.real_time


def known_queue(*, looked_at_ms: int) -> CachedQueue:
    """A queue whose leases were all looked at, the oldest ones too."""
    known = CachedQueue(QueueRow(1, "orders", QueueSettings().to_json(), 1, "orders.dead", 0))
    for _ in range(2):
        known.asked(looked_at_ms, None, from_ms=known.lapsed_from_ms(looked_at_ms), has_spent=False)
    return known


def test_leases_are_looked_at_from_where_the_last_look_ended() -> None:
    known = known_queue(looked_at_ms=1_000_000)
    assert known.lapsed_from_ms(1_001_000) == 1_000_000 - LATE_MS


def test_leases_that_one_look_has_no_time_for_are_in_the_next() -> None:
    known = known_queue(looked_at_ms=1_000_000)
    from_ms = known.lapsed_from_ms(1_030_000)
    known.asked(1_030_000, MORE_MS, from_ms=from_ms, has_spent=False)
    assert known.is_due(1_030_000)
    assert known.lapsed_from_ms(1_030_000) == from_ms


def test_a_lease_that_others_hold_is_in_every_look_until_they_have_ended() -> None:
    known = known_queue(looked_at_ms=1_000_000)
    for now_ms in range(1_001_000, 1_020_000, 1_000):
        from_ms = known.lapsed_from_ms(now_ms)
        assert from_ms < 1_000_500
        # The first look at it may have made it due, so there is a second one at once.
        for _ in range(2):
            known.asked(now_ms, 1_000_500, from_ms=from_ms, has_spent=False)
        assert not known.is_due(now_ms)
        assert known.is_due(now_ms + HELD_MS)
    known.asked(1_020_000, None, from_ms=known.lapsed_from_ms(1_020_000), has_spent=False)
    assert known.lapsed_from_ms(1_021_000) == 1_020_000 - LATE_MS


def test_a_look_that_began_behind_what_another_one_left_does_not_count() -> None:
    known = known_queue(looked_at_ms=1_000_000)
    one, other = known.lapsed_from_ms(1_001_000), known.lapsed_from_ms(1_003_000)
    known.asked(1_001_000, one + 1, from_ms=one, has_spent=False)
    known.asked(1_003_000, None, from_ms=other + 1, has_spent=False)
    assert known.lapsed_from_ms(1_004_000) == one


def test_now_and_then_a_look_goes_further_back() -> None:
    known = known_queue(looked_at_ms=1_000_000)
    for now_ms in range(1_001_000, 1_060_000, 1_000):
        known.asked(now_ms, None, from_ms=known.lapsed_from_ms(now_ms), has_spent=False)
    assert known.lapsed_from_ms(1_061_000) == 1_061_000 - LATER_MS
    assert known.lapsed_from_ms(1_061_000) == 1_059_000 - LATE_MS
    assert known.lapsed_from_ms(1_000_000 + FORGET_MS) == -1


def test_a_look_that_is_told_that_nothing_is_due_counts_as_one() -> None:
    known = known_queue(looked_at_ms=1_000_000)
    for now_ms, from_ms in (
        (1_001_000, 1_000_000 - LATE_MS),
        (1_059_000, 1_001_000 - LATE_MS),
        (1_061_000, 1_061_000 - LATER_MS),
        (1_062_000, 1_061_000 - LATE_MS),
    ):
        assert known.looks_from_ms(now_ms) == known.looks_from_ms(now_ms) == from_ms
        known.nothing_was_due(now_ms, from_ms=from_ms)
    # Meanwhile another look has left a lease that others hold.
    left = 1_062_000 - LATE_MS
    known.asked(1_062_500, left, from_ms=left, has_spent=False)
    known.nothing_was_due(1_063_000, from_ms=left)
    assert known.looks_from_ms(1_064_000) == left - 1


async def opened(settings: PostgresSettings, clock: SimClock) -> PostgresStore:
    return await PostgresStore.open(settings, clock=clock, dice=SimDice(), may_migrate=False, has_upkeep=False)


def hold_leases(settings: PostgresSettings) -> psycopg.Connection:
    """Lock all leases, as an ack in a transaction of a caller does, until it is rolled back."""
    connection = psycopg.connect(settings.url)
    connection.execute(f"SELECT number FROM {settings.schema}.lease FOR UPDATE".encode())
    return connection


async def test_a_lease_that_ended_while_a_transaction_held_it_comes_back_when_that_is_rolled_back() -> None:
    settings, clock = empty_schema(), SimClock()
    store = await opened(settings, clock)
    try:
        await store.create("orders", QueueSettings())
        await store.send("orders", Drafts(bodies=[b"a", b"b"]))
        await store.lease("orders", want=1, lease_ms=1_000)
        with hold_leases(settings) as holder:
            for _ in range(3):
                clock.advance_ms(30_000)
                # There is something else, or nothing: time goes on either way.
                await store.lease("orders", want=1, lease_ms=3_600_000)
            holder.rollback()
            clock.advance_ms(HELD_MS)
            delivery = await store.lease("orders", want=1)
        assert delivery is not None
        assert list(delivery.deliveries) == [2]
    finally:
        await store.close()


async def test_however_many_leases_have_ended_all_of_their_messages_come_back() -> None:
    settings, clock = empty_schema(), SimClock()
    store = await opened(settings, clock)

    async def lease_some(count: int) -> None:
        for _ in range(count):
            # For each there is one, though others may just be at it.
            while await store.lease("orders", want=1, lease_ms=1_000) is None:
                pass

    try:
        await store.create("orders", QueueSettings())
        # More than one call lets lapse, and long ago: no store was open to see it.
        count = ADVANCE_MOST + 108
        await store.send("orders", Drafts(bodies=[b""] * count))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(8):
                tasks.create_task(lease_some(count // 8))
        assert (await store.counts("orders")).leased == count
        clock.advance_ms(300_000)
        await store.tidy()
        assert (await store.counts("orders")).leased == 0
    finally:
        await store.close()


async def test_an_escalation_waits_for_a_message_that_is_being_released() -> None:
    # Longer than it takes to see that it waits.
    settings, clock = replace(empty_schema(), timing=Timing(lapse_ms=60_000)), SimClock()
    store = await opened(settings, clock)
    try:
        await store.create("orders", QueueSettings())
        ids = await store.send("orders", Drafts(bodies=[b"a"]))
        await store.lease("orders", want=1, lease_ms=1_000)
        clock.advance_ms(30_000)
        with hold_leases(settings) as holder:
            order = EscalationOrder(tier=0, actor="ada", reason="")
            asked = asyncio.ensure_future(store.escalate("orders", ids, order))  # noqa: TID251 - awaited below.
            await until_waited_for(holder)
            holder.rollback()
            assert await asked == [Outcome.DONE]
    finally:
        await store.close()


@pytest.mark.parametrize("verb", ["purge", "delete"])
async def test_a_message_whose_lease_ends_at_that_moment_goes_with_the_rest_of_its_queue(verb: str) -> None:
    settings, clock = empty_schema(), SimClock()
    store = await opened(settings, clock)
    none = "ARRAY[0, 0, 0, 0, 0]"
    advance = f"SELECT * FROM penstock.advance(1, %s, -1, 0, {none}, false, 10, 0, {none})".encode()
    left = "SELECT (SELECT count(*) FROM penstock.marked) + (SELECT count(*) FROM penstock.leased)"
    try:
        await store.create("orders", QueueSettings())
        await store.send("orders", Drafts(bodies=[b"a"], groups=[b"g"]))
        await store.lease("orders", want=1, lease_ms=1_000)
        clock.advance_ms(2_000)
        async with await psycopg.AsyncConnection.connect(settings.url) as other:
            await other.execute(advance, (store.now_ms(),))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(getattr(store, verb)("orders"))
                await until_waited_for(other)
                await other.commit()
            assert await (await other.execute(left)).fetchone() == (0,)
    finally:
        await store.close()
