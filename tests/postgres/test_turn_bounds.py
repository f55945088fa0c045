"""Turns have floors and bounds: no lease walks over dead rows of leased messages, and no message is passed over."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import psycopg
import pytest

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts, Receipt
from penstock.store.interface import Outcome, Release
from penstock.store.postgres.database import Database
from penstock.store.postgres.statements import function
from tests.postgres.blocks import BLOCKS_MOST, DEAD, Stage, opened, pinned

pytestmark = pytest.mark.real_time

NORMAL = int(Tier.NORMAL)


async def test_a_lease_of_groups_does_not_walk_over_what_a_pinned_snapshot_keeps() -> None:
    async with opened() as stage, pinned(stage):
        await stage.send(500, groups=100)
        await stage.serve(500, times=DEAD // 500)
        bounds = (await stage.known()).turn_bounds.lowest
        first = "SELECT penstock.first_turns(1, %s::bigint[])"
        # What groups hold is found then without what they held before.
        stage.clock.advance_ms(10_000)
        for _ in range(3):
            # The second time the catalogue is known, and the third each group has a row of these ten seconds.
            unbound, bound = [await stage.blocks(first, (each,)) for each in ([0] * 5, bounds)]
            leased = await stage.blocks_of_a_lease()
            entered = await stage.blocks(f"SELECT penstock.next_turn(1, {NORMAL}::smallint, '1', 0)")
        assert unbound > 150, "then there was nothing to walk over"
        assert bound < 50
        assert entered < 50
        assert leased < BLOCKS_MOST


async def test_to_send_to_a_group_that_keeps_its_order_is_not_to_look_at_other_groups() -> None:
    async with opened(QueueSettings(is_fifo=True)) as stage:
        refresh = "SELECT penstock.refresh_lines(1, ARRAY['last'::bytea])"
        # The plan is made now, while nothing is there that could tell a good one, and kept.
        await stage.blocks(refresh)
        for _ in range(6):
            await stage.send(1_000)
        await stage.store.send("orders", Drafts(bodies=[b""], groups=[b"last"]))
        found = [await stage.blocks(refresh) for _ in range(2)]
        assert found[1] < 40


async def test_a_grouped_send_that_commits_late_is_not_passed_over() -> None:
    async with opened() as stage:
        known = await stage.known()
        call = function("send", "penstock")
        values = [known.number, known.version, stage.store.now_ms(), [NORMAL], [b"late"], None, [b"late"]]
        async with await Database(stage.store._database.settings).connect() as late, late.transaction():
            await late.execute(
                call.text, call.arguments([*values, *[None] * 4, False, None, None, *[None] * 3, 1, None])
            )
            before = known.turn_bounds.lowest[NORMAL]
            await stage.serve(20)
            assert known.turn_bounds.lowest[NORMAL] == before
        await stage.send(20)
        assert b"late" in [bytes(body) for body in (await stage.lease(21)).bodies]
        await stage.serve(20)
        assert known.turn_bounds.lowest[NORMAL] > stage.store.now_ms()


async def test_a_lease_that_is_rolled_back_hides_nothing() -> None:
    async with opened() as stage:
        await stage.serve(20)
        await stage.send(10)
        async with await psycopg.AsyncConnection.connect(stage.url) as other:
            # What a lease does first, and then it is undone.
            await other.execute("DELETE FROM penstock.marked")
            for _ in range(6):
                await stage.store.send("orders", Drafts(bodies=[b"new"], groups=[b"new"]))
                delivery = await stage.lease(1)
                await stage.store.ack("orders", delivery.receipts())
            await other.rollback()
        assert len(await stage.lease(100)) == 10


Way = Callable[[Stage, Sequence[Receipt]], Awaitable[None]]


async def released(stage: Stage, receipts: Sequence[Receipt]) -> None:
    assert await stage.store.release("orders", receipts, Release(delay_ms=0)) == [Outcome.DONE]


async def delayed(stage: Stage, receipts: Sequence[Receipt]) -> None:
    assert await stage.store.release("orders", receipts, Release(delay_ms=500)) == [Outcome.DONE]
    stage.clock.advance_ms(1_000)


async def lapsed(stage: Stage, receipts: Sequence[Receipt]) -> None:
    stage.clock.advance_ms(100_000)


async def revived(stage: Stage, receipts: Sequence[Receipt]) -> None:
    """Spent, in the eyes of the database, before the bounds rose; and there is another chance when they have."""
    await stage.watcher.execute("UPDATE penstock.lease SET until_ms = 0, wakes_at_ms = 1 WHERE held = 1")
    await stage.watcher.execute("UPDATE penstock.leased SET deliveries = 3")
    none = "ARRAY[0, 0, 0, 0, 0]"
    call = f"SELECT * FROM penstock.advance(1, %s, -1, 3, {none}, false, 10, 0, {none})"
    await stage.watcher.execute(call.encode(), (stage.store.now_ms(),))
    await stage.serve(20)
    await stage.store.change("orders", QueueSettings(deliveries_max=9))


@pytest.mark.parametrize("come_back", [released, delayed, lapsed, revived])
async def test_what_comes_back_is_not_before_where_a_lease_begins_to_look(come_back: Way) -> None:
    async with opened() as stage:
        await stage.store.send("orders", Drafts(bodies=[b"first"], groups=[b"first"]))
        held = await stage.lease(1, lease_ms=90_000)
        await stage.serve(20)
        assert (await stage.known()).turn_bounds.lowest[NORMAL] > stage.store.now_ms(), "above the turn of the first"
        await come_back(stage, held.receipts())
        again = await stage.lease(10)
        assert [bytes(body) for body in again.bodies] == [b"first"]


async def test_bounds_of_another_life_of_the_database_are_not_believed() -> None:
    """It was restored to a time before: turns that were served then are to come."""
    async with opened() as stage:
        await stage.serve(20)
        known = await stage.known()
        assert known.turn_bounds.lowest[NORMAL] > stage.store.now_ms()
        await stage.watcher.execute(f"SELECT setval('penstock.floor_1_{NORMAL}', 1)".encode())
        await stage.send(1)
        assert len(await stage.lease(1)) == 1
        assert known.turn_bounds.lowest[NORMAL] == 0


async def test_floors_only_rise_with_many_leases_at_once() -> None:
    async with opened() as stage:
        seen: list[int] = []

        async def work() -> None:
            for _ in range(15):
                await stage.send(4)
                delivery = await stage.store.lease("orders", want=4)
                if delivery is not None:
                    await stage.store.ack("orders", delivery.receipts())
                row = await (await stage.watcher.execute("SELECT penstock.turn_floors(1)")).fetchone()
                assert row is not None
                seen.append(row[0][NORMAL])

        await asyncio.gather(*(work() for _ in range(4)))
        assert seen == sorted(seen)
        assert seen[-1] > seen[0]


async def test_a_message_that_is_below_a_bound_by_mistake_is_found_within_ten_minutes() -> None:
    async with opened() as stage:
        await stage.serve(20)
        await stage.send(1)
        await stage.watcher.execute("UPDATE penstock.marked SET turn = 5")
        assert await stage.store.lease("orders", want=1) is None, "then it was not below the bound"
        stage.clock.advance_ms(600_000)
        assert len(await stage.lease(1)) == 1
