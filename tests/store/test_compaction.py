"""Keeping a journal short: what is settled goes, what is live stays what it was."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts, Run
from penstock.log.settings import MAY_LOSE
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.store.embedded.body_index import BodyCache
from penstock.store.embedded.shard_state import stored
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import Delivery, Outcome, Release
from penstock.telemetry import LogEvent
from tests.simulation.clock import SimClock
from tests.simulation.world import Died, Machine
from tests.store.small import FOLDER, QUEUE, SETTINGS, SNAPSHOTS, Shop, opened
from tests.waiting import elapse, let_others_run

MINUTE_MS = 60_000
FEW = 10


def rows(delivery: Delivery) -> list[tuple[str, bytes, bytes, int, int, bytes, int]]:
    """All that a delivery says of each of its messages."""
    attributes = delivery.attributes or [memoryview(b"")] * len(delivery)
    groups = delivery.groups or [b""] * len(delivery)
    columns = (delivery.ids, delivery.bodies, attributes, delivery.tiers, delivery.deliveries, groups)
    return [
        (name, bytes(body), bytes(extra), tier, deliveries, group, sent_at_ms)
        for name, body, extra, tier, deliveries, group, sent_at_ms in zip(*columns, delivery.sent_at_ms, strict=True)
    ]


async def test_a_journal_of_settled_messages_goes_down_to_a_few_segments() -> None:
    shop = await opened()
    await shop.churn(200)
    assert len(shop.log.segments) > 20
    await shop.shorten()
    assert len(shop.log.segments) <= FEW
    assert shop.logged("log.segment_dropped") > 20
    await shop.crash()
    await shop.churn(1)
    await shop.close()


async def test_a_live_message_that_was_copied_survives_a_power_cut_under_each_policy() -> None:
    for sync in MAY_LOSE:
        shop = Shop(settings=dataclasses.replace(SETTINGS, sync=sync))
        await shop.open()
        await shop.store.create("orders", QUEUE)
        await shop.send(b"old")
        await shop.churn(100)
        await shop.shorten()
        assert shop.log.start_offset > 0, "its first place is gone"
        await shop.crash()
        assert [bytes(body) for body in (await shop.lease()).bodies] == [b"old"], sync
        await shop.close()


async def test_nothing_goes_before_there_are_two_snapshots() -> None:
    shop = await opened()
    await shop.churn(50)
    assert await shop.upkeep() is False
    assert (len(shop.snapshots()), shop.log.start_offset) == (1, 0)
    first = shop.snapshots()
    assert await shop.upkeep() is True
    assert shop.snapshots() == first
    await shop.churn(50)
    assert await shop.upkeep() is False
    assert len(shop.snapshots()) == 2
    assert 0 < shop.log.start_offset <= first[0]
    await shop.close()


async def test_there_is_nothing_to_do_until_a_segment_is_closed() -> None:
    shop = await opened()
    await shop.send(b"a")
    assert await shop.upkeep() is True
    assert shop.snapshots() == []
    await shop.close()


async def test_at_most_two_snapshots_are_kept() -> None:
    shop = await opened()
    for _ in range(6):
        await shop.churn(20)
        await shop.upkeep()
        assert len(shop.snapshots()) <= 2
        assert shop.log.start_offset <= shop.snapshots()[0]
    await shop.close()
    names = shop.machine.disk.names(SNAPSHOTS)
    assert len(names) == 2


@pytest.mark.parametrize("end", ["stay", "crash", "kill", "close"])
async def test_a_live_message_in_the_oldest_segment_stays_what_it_is(end: str) -> None:
    shop = await opened()
    drafts = Drafts(
        bodies=[b"first", b"second", b"", b"fourth" * 20],
        tiers=bytes([Tier.LOW, Tier.HIGH, Tier.LOW, Tier.CRITICAL]),
        groups=[b"", b"red", b"red", b"blue"],
        attributes=[b"", b"color", b"shape", b""],
    )
    ids = await shop.store.send("orders", drafts)
    await shop.send(b"without attributes")
    first = await shop.lease()
    assert sorted(first.ids) == sorted(
        [*ids, first.ids[[bytes(body) for body in first.bodies].index(b"without attributes")]]
    )
    await shop.store.release("orders", first.receipts(), Release(delay_ms=0, error="it failed"))
    await shop.shorten()
    assert shop.log.start_offset > 10
    if end == "close":
        await shop.close()
        await shop.open()
    elif end != "stay":
        await (shop.crash() if end == "crash" else shop.kill())
    again = await shop.lease()
    # A second delivery of the same messages.
    expected = [(*row[:4], row[4] + 1, *row[5:]) for row in rows(first)]
    assert sorted(rows(again)) == sorted(expected)
    assert await shop.store.ack("orders", again.receipts()) == [Outcome.DONE] * 5
    await shop.close()


async def test_a_body_may_be_copied_many_times() -> None:
    shop = await opened()
    await shop.send(b"straggler")
    starts = set()
    for _ in range(5):
        await shop.shorten()
        starts.add(shop.log.start_offset)
    assert len(starts) == 5
    await shop.crash()
    assert await shop.drain() == [b"straggler"]
    await shop.close()


async def test_a_leased_message_is_copied_and_its_receipt_stays_good() -> None:
    shop = await opened()
    await shop.send(b"a", b"b", b"c")
    delivery = await shop.lease(2)
    await shop.shorten()
    assert shop.log.start_offset > 10
    assert await shop.store.ack("orders", delivery.receipts()[:1]) == [Outcome.DONE]
    assert await shop.store.release("orders", delivery.receipts()[1:], Release(delay_ms=0)) == [Outcome.DONE]
    assert sorted(await shop.drain()) == [b"b", b"c"]
    await shop.close()


async def test_a_delayed_message_is_copied() -> None:
    shop = await opened()
    at_ms = shop.machine.clock.now_ms() + 10 * MINUTE_MS
    await shop.store.send("orders", Drafts(bodies=[b"later"], visible_at_ms=[at_ms]))
    await shop.shorten()
    assert shop.log.start_offset > 10
    assert await shop.drain() == []
    await elapse(11 * 60)
    assert await shop.drain() == [b"later"]
    await shop.close()


async def spend(shop: Shop, *bodies: bytes) -> list[str]:
    """Send messages and let them fail as often as they may."""
    ids = await shop.send(*bodies)
    for _ in range(QUEUE.deliveries_max):
        delivery = await shop.lease(len(bodies))
        await shop.store.release("orders", delivery.receipts(), Release(delay_ms=0))
    return ids


async def test_a_dead_letter_keeps_its_body() -> None:
    shop = await opened()
    ids = await spend(shop, b"bad", b"worse")
    await shop.store.tidy()
    await shop.shorten()
    assert shop.log.start_offset > 10
    await shop.crash()
    dead = await shop.lease(queue="orders.dead")
    assert dead.ids == ids
    assert list(map(bytes, dead.bodies)) == [b"bad", b"worse"]
    await shop.close()


async def test_a_message_that_is_buried_while_the_journal_is_shortened_keeps_its_body() -> None:
    """The plan knows it by a number that it no longer has."""
    shop = await opened()
    ids = await spend(shop, b"bad", b"worse")
    await shop.churn(50)
    await shop.upkeep()
    await shop.churn(50)
    shop.meanwhile = shop.store.tidy
    await shop.upkeep()
    assert shop.log.start_offset > 20
    shop.shard.hot = BodyCache(0)
    for crash in (False, True):
        if crash:
            await shop.crash()
        dead = await shop.lease(queue="orders.dead")
        assert dead.ids == ids
        assert list(map(bytes, dead.bodies)) == [b"bad", b"worse"]
        await shop.store.release("orders.dead", dead.receipts(), Release(delay_ms=0))
    await shop.close()


async def test_messages_that_are_buried_while_the_journal_is_shortened_are_copied_together() -> None:
    shop = await opened()
    bodies = [b"%d" % number for number in range(50)]
    await spend(shop, *bodies)
    await shop.churn(50)
    await shop.upkeep()
    await shop.churn(50)
    before = 0

    async def bury() -> None:
        nonlocal before
        await shop.store.tidy()
        before = shop.log.end_offset

    shop.meanwhile = bury
    await shop.upkeep()
    assert shop.log.start_offset > 20
    assert shop.log.end_offset - before < 5
    assert await shop.drain("orders.dead") == bodies
    await shop.close()


async def test_a_queue_that_is_purged_or_deleted_while_the_journal_is_shortened_is_no_hindrance() -> None:
    shop = await opened()
    await shop.store.create("brief", QUEUE)
    await shop.send(b"a", b"b")
    await shop.send(b"c", b"d", queue="brief")
    await shop.churn(50)
    await shop.upkeep()
    await shop.churn(50)

    async def empty() -> None:
        await shop.store.purge("orders")
        await shop.store.delete("brief")

    shop.meanwhile = empty
    await shop.upkeep()
    assert shop.log.start_offset > 20
    await shop.send(b"e")
    await shop.crash()
    assert await shop.drain() == [b"e"]
    await shop.close()


@pytest.mark.parametrize("step", range(12))
async def test_nothing_is_dropped_for_a_deletion_that_may_be_undone(step: int) -> None:
    """A queue that is deleted needs no copies; but after a crash it may not be deleted."""
    shop = await opened()
    await shop.send(b"a")
    await shop.churn(50)
    await shop.upkeep()
    await shop.churn(50)

    async def delete_and_shorten() -> None:
        async with asyncio.TaskGroup() as tasks:

            async def meanwhile() -> None:
                # The deletion has to wait, because something else is being written.
                for verb in (shop.send(b"b", queue="churn"), shop.store.delete("orders")):
                    tasks.create_task(verb)
                    await let_others_run(3)
                shop.machine.disk.crash_after = shop.machine.disk.operations + step

            shop.meanwhile = meanwhile
            await shop.upkeep()

    with pytest.raises(Died):
        await shop.machine.run(delete_and_shorten())
    await shop.crash()
    if "orders" in shop.shard.memory.numbers:
        assert await shop.drain() == [b"a"]
    await shop.close()


async def test_messages_settled_and_sent_while_the_journal_is_shortened_are_what_they_are() -> None:
    shop = await opened()
    await shop.send(b"a", b"b", b"c")
    await shop.churn(50)
    await shop.upkeep()
    await shop.churn(50)

    async def work() -> None:
        delivery = await shop.lease(2)
        await shop.store.ack("orders", delivery.receipts())
        await shop.send(b"d")

    shop.meanwhile = work
    await shop.upkeep()
    assert shop.log.start_offset > 20
    await shop.crash()
    assert await shop.drain() == [b"c", b"d"]
    await shop.close()


async def test_a_reader_that_has_looked_up_a_place_still_gets_the_body() -> None:
    shop = await opened()
    await shop.send(b"a")
    await shop.churn(50)
    await shop.upkeep()
    await shop.churn(50)
    (span,) = shop.shard.memory.places[1].spans([Run(Tier.NORMAL, 0, 1)])
    async with asyncio.TaskGroup() as tasks:
        with shop.shard.readers.current:
            upkeep = tasks.create_task(shop.upkeep())
            await elapse(60)
            # It has been copied, and waits.
            assert shop.shard.memory.places[1].span(Tier.NORMAL, 0).record > span.record
            assert not upkeep.done()
            # Who comes now is not waited for.
            with shop.shard.readers.current:
                await shop.churn(1)
            (batch,) = await shop.log.read(span.record, bytes_max=1)
            assert bytes(stored(batch, span.record).bodies[0]) == b"a"
    assert shop.log.start_offset > span.record
    await shop.close()


async def test_leases_go_on_while_the_journal_is_shortened_under_them() -> None:
    machine = Machine(seed=3)
    machine.disk.cold = True
    shop = Shop(machine)
    await shop.open(upkeep_ms=1)
    await shop.store.create("orders", QUEUE)
    shop.shard.hot = BodyCache(0)
    bodies = [b"%d" % number + bytes(50) for number in range(60)]
    for body in bodies:
        await shop.send(body)
    found: list[bytes] = []

    async def work() -> None:
        while (delivery := await shop.store.lease("orders", want=3)) is not None:
            found.extend(map(bytes, delivery.bodies))
            await shop.churn(5)
            await shop.store.ack("orders", delivery.receipts())

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(work())
    assert sorted(found) == sorted(bodies)
    assert shop.log.start_offset > 0
    assert shop.logged("store.upkeep_failed") == 0
    await shop.close()


async def test_the_journal_stays_within_about_twice_what_is_live() -> None:
    """A long life, in which one message of fifty is left over, and some of those are done with much later."""
    shop = Shop(Machine())
    await shop.open(upkeep_ms=20)
    await shop.store.create("orders", QUEUE)
    live: list[bytes] = []
    most = 0
    for turn in range(60):
        live.append(b"%d" % turn + bytes(400))
        await shop.send(live[-1])
        await shop.churn(20)
        if turn % 3 == 2:
            delivery = await shop.lease(1)
            await shop.store.ack("orders", delivery.receipts())
            live.remove(bytes(delivery.bodies[0]))
        await elapse(2)
        live_bytes = sum(map(len, live))
        most = max(most, shop.journal_bytes())
        # What was closed since the last snapshot but one, and what is being filled.
        assert shop.journal_bytes() <= 2 * live_bytes + 8 * SETTINGS.segment_bytes_max, turn
        assert len(shop.snapshots()) <= 2
    assert shop.sent * 100 > 2 * most
    await shop.crash()
    assert await shop.drain() == live
    await shop.close()


SIZES = dataclasses.replace(SETTINGS, segment_bytes_max=4_000_000, allocate_bytes=20_000_000)


async def uneven(count: int, size: int) -> Shop:
    """A queue that has seen many tiny messages, and in which some large ones are left."""
    shop = await opened(settings=SIZES)
    for _ in range(20):
        await shop.send(*[b"x"] * 1_000)
        assert len(await shop.drain()) == 1_000
    for number in range(count):
        await shop.patiently(lambda number=number: shop.send(b"%d" % number + bytes(size)))  # type: ignore[misc]
    return shop


async def test_large_bodies_among_many_tiny_ones_are_copied_in_steps_that_fit() -> None:
    """Together they are more than a batch of a journal may hold."""
    shop = await uneven(70, 250_000)
    await shop.churn(1)
    await shop.upkeep()
    start = shop.log.start_offset
    for _ in range(2):
        # Large ones that are soon done with, so that less than half of the journal is live.
        for _ in range(80):
            await shop.patiently(lambda: shop.send(bytes(250_000), queue="churn"))
            await shop.drain("churn")
        await shop.upkeep()
    assert shop.log.start_offset > start
    await shop.crash()
    assert [body[:2].rstrip(b"\0") for body in await shop.drain()] == [b"%d" % number for number in range(70)]
    await shop.close()


@pytest.mark.parametrize(("count", "size"), [(1, 0), (1, 1), (20, 2), (1, 200)])
async def test_what_is_live_is_not_copied_again_and_again(count: int, size: int) -> None:
    """However small it is, and also if nothing else happens."""
    shop = Shop(Machine())
    await shop.open(upkeep_ms=100)
    await shop.store.create("orders", QUEUE)
    bodies = [b"x" * size] * count
    for _ in range(1_000 // count):
        await shop.patiently(lambda: shop.send(*bodies))
    await elapse(60)
    await shop.churn(40)
    await elapse(60)
    await shop.churn(40)
    await elapse(600)
    copied = shop.log.end_offset
    await elapse(600)
    assert shop.log.end_offset == copied
    assert (await shop.store.counts("orders")).live == 1_000
    await shop.close()


async def test_large_bodies_count_as_what_they_are_however_small_others_were() -> None:
    shop = await uneven(30, 250_000)
    for _ in range(2):
        await shop.churn(1)
        await shop.upkeep()
        for _ in range(17):
            await shop.patiently(lambda: shop.send(bytes(250_000)))
    # All of it is live.
    assert len(shop.snapshots()) == 2
    assert shop.log.start_offset == 0
    await shop.close()


# For real.


@pytest.mark.real_time
async def test_a_real_child_keeps_a_real_journal_short(tmp_path: Path) -> None:
    logged: list[str] = []

    def log_event(event: LogEvent, /, **fields: object) -> None:
        logged.append(event.name)

    settings = dataclasses.replace(SETTINGS, segment_bytes_max=20_000)
    queue = QueueSettings(retention_ms=0)
    async with ThreadWorkers(2, halt) as workers:
        # A clock that stands still, so that nothing rests between two snapshots.
        runtime = dataclasses.replace(system_runtime(tmp_path, workers), clock=SimClock(), log_event=log_event)
        async with await EmbeddedStore.open(runtime, FOLDER, settings, upkeep_ms=10) as store:
            await store.create("orders", queue)
            await store.create("churn", queue)
            drafts = Drafts(bodies=[b"a", b"b"], groups=[b"red", b""], attributes=[b"", b"blue"])
            ids = await store.send("orders", drafts)
            async with asyncio.timeout(300):
                while logged.count("log.segment_dropped") < 5:
                    await store.send("churn", Drafts(bodies=[bytes(500)] * 20))
                    delivery = await store.lease("churn", want=20)
                    assert delivery is not None
                    await store.ack("churn", delivery.receipts())
            assert "store.snapshot_failed" not in logged
            assert "store.upkeep_failed" not in logged
        async with await EmbeddedStore.open(runtime, FOLDER, settings) as store:
            assert store._shards.running[0]._log.start_offset > 0
            delivery = await store.lease("orders", want=10)
            assert delivery is not None
            assert [row[:3] for row in rows(delivery)] == [(ids[0], b"a", b""), (ids[1], b"b", b"blue")]
            assert delivery.groups == [b"red", b""]
