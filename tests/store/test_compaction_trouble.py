"""Keeping a journal short when the disk is full, the child fails, or the store is closed meanwhile."""

import asyncio
import dataclasses

import pytest

from penstock.contract.queue_settings import History
from penstock.log.interface import LogFull
from penstock.runtime.interface import BackgroundProcessFailed
from penstock.store.embedded.body_index import BodyCache
from penstock.store.embedded.history_writer import frames
from tests.simulation.clock import SimClock
from tests.simulation.world import Died, Machine
from tests.store.small import QUEUE, Shop, opened
from tests.waiting import elapse


async def has_room(shop: Shop, size: int) -> bool:
    try:
        await shop.send(bytes(size), queue="churn")
    except LogFull:
        return False
    return True


async def test_a_full_disk_puts_it_off_and_breaks_nothing() -> None:
    shop = await opened()
    bodies = [b"%d" % number + bytes(200) for number in range(30)]
    await shop.send(*bodies)
    await shop.churn(100)
    await shop.upkeep()
    await shop.churn(100)
    used, start = shop.machine.disk.used_bytes(), shop.log.start_offset
    # There is not even room for the snapshot.
    shop.machine.disk.capacity_bytes = used
    before = shop.snapshots()
    assert await shop.upkeep() is False
    assert shop.logged("store.snapshot_failed") == 1
    assert (shop.snapshots(), shop.log.start_offset) == (before, start)
    shop.machine.disk.capacity_bytes = None
    await shop.upkeep()
    assert shop.log.start_offset > start
    await shop.crash()
    assert await shop.drain() == bodies
    await shop.close()


async def test_copies_that_find_no_room_are_made_when_there_is_some() -> None:
    shop = await opened()
    bodies = [b"%d" % number + bytes(200) for number in range(30)]
    await shop.send(*bodies)
    await shop.churn(100)
    await shop.upkeep()
    await shop.churn(100)
    start = shop.log.start_offset

    async def fill() -> None:
        """The snapshot is made, and then the disk is full."""
        shop.machine.disk.capacity_bytes = shop.machine.disk.used_bytes()
        for size in (50_000, 1_000):
            while await has_room(shop, size):
                pass

    shop.meanwhile = fill
    with pytest.raises(LogFull):
        await shop.upkeep()
    assert shop.log.start_offset == start
    shop.machine.disk.capacity_bytes = None
    # No segment was closed since.
    for _ in range(3):
        await shop.upkeep()
    assert shop.log.start_offset > start
    assert len(shop.snapshots()) == 2
    await shop.crash()
    assert await shop.drain() == bodies
    await shop.close()


async def test_a_child_that_fails_is_noted_and_started_again() -> None:
    shop = Shop(Machine())
    await shop.open(upkeep_ms=100)
    await shop.store.create("orders", QUEUE)

    async def fail() -> None:
        raise BackgroundProcessFailed("it was killed")

    shop.meanwhile = fail
    await shop.churn(50)
    await elapse(10)
    ((_, fields),) = [entry for entry in shop.machine.log_events.events if entry[0].name == "store.snapshot_failed"]
    assert fields["error"] == "it was killed"
    await shop.churn(50)
    await elapse(10)
    assert shop.logged("store.snapshot_made") >= 1
    await shop.churn(1)
    await shop.close()


async def test_a_child_whose_disk_failed_stops_the_process() -> None:
    shop = await opened()
    await shop.churn(50)
    shop.machine.disk.fail_sync_after = 0
    with pytest.raises(Died):
        await shop.machine.run(shop.upkeep())
    assert shop.snapshots() == []
    await shop.crash()
    await shop.churn(1)
    await shop.close()


async def test_a_mistake_is_noted_and_the_store_goes_on() -> None:
    shop = Shop(Machine())
    await shop.open(upkeep_ms=100)

    async def fail() -> None:
        raise ValueError("a mistake")

    shop.meanwhile = fail
    await shop.churn(50)
    await elapse(10)
    assert shop.logged("store.upkeep_failed") == 1
    await shop.churn(50)
    await elapse(10)
    assert shop.logged("store.snapshot_made") >= 1
    await shop.close()


async def test_closing_a_store_does_not_wait_for_its_child() -> None:
    shop = Shop(Machine())
    await shop.open(upkeep_ms=1)
    forever = asyncio.Event()

    async def hang() -> None:
        await forever.wait()

    shop.meanwhile = hang
    await shop.churn(50)
    await elapse(1)
    # A snapshot was made, and its answer was not heard.
    assert (len(shop.snapshots()), shop.logged("store.snapshot_made")) == (1, 0)
    await shop.close()


async def test_the_history_of_a_deleted_queue_keeps_its_bodies_though_their_segments_go() -> None:
    shop = await opened()
    await shop.store.create("kept", dataclasses.replace(QUEUE, history=History.FULL))
    await shop.send(b"a" * 50, b"b" * 50, queue="kept")
    await shop.churn(30)
    await shop.upkeep()
    await shop.churn(30)
    # Otherwise the bodies would be there in memory.
    shop.shard.hot = BodyCache(0)

    async def delete() -> None:
        await shop.store.delete("kept")

    shop.meanwhile = delete
    await shop.upkeep()
    assert shop.log.start_offset > 0
    told = [frame async for _, frame in frames(shop.running.history_log, 0)]
    bodies = [bytes(body) for frame in told if frame.body is not None for body in frame.body]
    assert [body for body in bodies if body] == [b"a" * 50, b"b" * 50]
    await shop.close()


async def test_the_history_is_written_within_seconds_though_the_clock_was_set_back() -> None:
    shop = Shop(Machine())
    shop.machine.clock.advance_ms(3_600_000)
    await shop.open()
    await shop.churn(1)
    await shop.close()
    shop.machine.clock = SimClock()
    await shop.open()
    await shop.churn(1)
    assert shop.shard.history is not None
    assert shop.shard.history.pending_rows == 1
    await elapse(5)
    assert shop.shard.history.pending_rows == 0
    await shop.close()
