"""No step of the event loop grows with what an operation finds: counted in lines of Python, at one small size."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.contract.limits import TURN_ROWS
from penstock.contract.messages import Tier
from penstock.contract.queue_settings import DedupScope, History
from penstock.core.queue.message import Drafts
from penstock.log.settings import LogSettings
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.store.embedded.shard_set import folders_of
from penstock.store.embedded.snapshot_file import save
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import MessageFilter, Outcome, RedriveOrder, Release
from penstock.store.pages import HistoryRange, NumberRange
from tests.steps import LINES_MAX, counted
from tests.store.small import QUEUE, Shop, opened
from tests.waiting import elapse, let_others_run

# Enough that to do it in one step takes several times as many lines as a step may have.
MANY = 12 * TURN_ROWS
DELAY_MS = 3_600_000

Grow = Callable[[Shop], Awaitable[None]]


async def a_shop() -> Shop:
    return await opened(settings=LogSettings(allocate_bytes=0, spare_bytes=64 * 1024))


async def plain(shop: Shop) -> None:
    for _ in range(MANY // TURN_ROWS):
        await shop.send(*[b"x"] * TURN_ROWS)


async def grouped(shop: Shop) -> None:
    for first in range(0, MANY, TURN_ROWS):
        groups = [b"%d" % (number % 100) for number in range(first, first + TURN_ROWS)]
        await shop.store.send("orders", Drafts(bodies=[b"x"] * TURN_ROWS, groups=groups))


async def delayed(shop: Shop) -> None:
    now_ms = shop.shard.now_ms()
    for _ in range(MANY // TURN_ROWS):
        drafts = Drafts(bodies=[b"x"] * TURN_ROWS, visible_at_ms=[now_ms + DELAY_MS] * TURN_ROWS)
        await shop.store.send("orders", drafts)


async def leased(shop: Shop) -> None:
    for _ in range(MANY // TURN_ROWS):
        await shop.send(*[b"x"] * TURN_ROWS)
        for _ in range(TURN_ROWS // 4):
            await shop.store.lease("orders", want=4)


async def leased_for_the_last_time(shop: Shop) -> None:
    await shop.store.change("orders", replace(QUEUE, deliveries_max=1, lease_ms=DELAY_MS))
    for _ in range(MANY // TURN_ROWS):
        await shop.send(*[b"x"] * TURN_ROWS)
        await shop.store.lease("orders", want=TURN_ROWS)


async def leased_one_by_one(shop: Shop) -> None:
    await shop.store.change("orders", replace(QUEUE, lease_ms=DELAY_MS))
    await shop.send(*[b"x"] * MANY)
    for _ in range(MANY):
        await shop.store.lease("orders", want=1)


async def bury(shop: Shop, queue: str, count: int) -> None:
    for first in range(0, count, TURN_ROWS):
        await shop.send(*[b"x"] * min(TURN_ROWS, count - first), queue=queue)
        delivery = await shop.lease(TURN_ROWS, queue=queue)
        await shop.store.release(queue, delivery.receipts(), Release(is_rejected=True))
    while (await shop.store.counts(queue)).stuck:
        await shop.store.tidy()


async def settled(shop: Shop) -> None:
    assert shop.shard.history is not None
    await shop.shard.history.flush()
    await elapse(1)


@pytest.mark.parametrize("history", [History.FACTS, History.OFF])
@pytest.mark.parametrize("grow", [plain, grouped, delayed, leased])
async def test_a_purge_and_what_follows_it_have_no_long_step(grow: Grow, history: History) -> None:
    shop = await a_shop()
    await shop.store.change("orders", replace(QUEUE, history=history))
    await grow(shop)
    with counted() as steps:
        assert await shop.store.purge("orders") == MANY
        await settled(shop)
    assert steps.longest < LINES_MAX, steps.culprit
    assert await shop.drain() == []
    page = await shop.store.history("orders", HistoryRange(most=65_536))
    assert len(page.number) == (MANY if history is History.FACTS else 0)
    await shop.close()


async def test_a_deletion_and_what_follows_it_have_no_long_step() -> None:
    shop = await a_shop()
    await grouped(shop)
    with counted() as steps:
        await shop.store.delete("orders")
        await settled(shop)
    assert steps.longest < LINES_MAX, steps.culprit
    await shop.close()


async def test_last_deliveries_that_lapse_together_have_no_long_step() -> None:
    shop = await a_shop()
    await leased_for_the_last_time(shop)
    await elapse(DELAY_MS / 1_000)
    with counted() as steps:
        assert (await shop.store.counts("orders")).leased > 0
        while (await shop.store.counts("orders")).leased:
            await shop.shard.settled()
    assert steps.longest < LINES_MAX, steps.culprit
    assert (await shop.store.counts("orders")).stuck == MANY
    await shop.close()


async def test_delays_that_end_at_one_instant_have_no_long_step() -> None:
    shop = await a_shop()
    await delayed(shop)
    await elapse(DELAY_MS / 1_000)
    woken: list[str] = []
    shop.store.watch(woken.append)
    with counted() as steps:
        while sum((await shop.store.counts("orders")).ready) < MANY:
            await shop.shard.settled()
    assert steps.longest < LINES_MAX, steps.culprit
    assert len(woken) > MANY // TURN_ROWS, "each turn wakes those who wait"
    # What is done in turns is in the journal: another process is where this one was.
    await shop.kill()
    assert sum((await shop.store.counts("orders")).ready) == MANY
    await shop.close()


async def test_a_store_that_is_killed_while_a_queue_catches_up_goes_on_when_it_is_opened() -> None:
    shop = await a_shop()
    await delayed(shop)
    await elapse(DELAY_MS / 1_000)
    # It is killed before the first turn.
    shop.shard.in_turns = lambda _: None
    assert sum((await shop.store.counts("orders")).ready) == 0
    before = shop.log.end_offset
    await shop.kill()
    await settled(shop)
    assert shop.log.end_offset - before > MANY // TURN_ROWS // 2, "each turn is an event"
    assert sum((await shop.store.counts("orders")).ready) == MANY
    await shop.close()


async def test_delays_that_end_while_no_server_is_there_end_in_turns_after_it_is() -> None:
    shop = await a_shop()
    await delayed(shop)
    await shop.send(b"leased")
    delivery = await shop.lease()
    await settled(shop)
    shop.machine.kill()
    await elapse(DELAY_MS / 1_000)
    before = shop.log.end_offset
    await shop.open()
    while sum((await shop.store.counts("orders")).ready) < MANY:
        await shop.shard.settled()
    assert shop.log.end_offset - before > MANY // TURN_ROWS, "each turn is an event"
    assert await shop.store.ack("orders", delivery.receipts()) == [Outcome.DONE], "its lease has begun again"
    assert len(await shop.drain()) == MANY
    await shop.close()


async def test_a_journal_is_replayed_in_turns() -> None:
    shop = await a_shop()
    await delayed(shop)
    with counted() as steps:
        await shop.kill()
    assert steps.longest < LINES_MAX, steps.culprit
    assert (await shop.store.counts("orders")).delayed == MANY
    await shop.close()


@pytest.mark.parametrize("grow", [grouped, leased_one_by_one])
async def test_pages_of_what_is_live_have_no_long_step(grow: Grow) -> None:
    shop = await a_shop()
    for _ in range(2):
        await grow(shop)
    after, seen = "", 0
    with counted() as steps:
        while page := await shop.store.live("orders", after=after, most=500, with_bodies=False):
            seen, after = seen + len(page.key), page.next
            if not after:
                break
            # Each page is a request of its own.
            await let_others_run()
    assert seen == 2 * MANY
    assert steps.longest < LINES_MAX, steps.culprit
    await shop.close()


async def test_the_first_question_after_a_leased_message_has_no_long_step() -> None:
    shop = await a_shop()
    (first,) = await shop.send(b"first")
    await leased_one_by_one(shop)
    with counted() as steps:
        (receipt,) = await shop.store.receipts("orders", [first])
    assert receipt is not None
    assert steps.longest < LINES_MAX, steps.culprit
    await shop.close()


async def test_a_search_that_finds_nothing_and_a_redrive_have_no_long_step() -> None:
    shop = await a_shop()
    await shop.store.change("orders", replace(QUEUE, deliveries_max=1))
    await bury(shop, "orders", 3 * TURN_ROWS)
    with counted() as steps:
        page = await shop.store.peek("orders.dead", MessageFilter(text=b"needle"), most=1_000)
        while page.next:
            page = await shop.store.peek("orders.dead", MessageFilter(text=b"needle"), most=1_000, after=page.next)
        # Each is a request of its own.
        await let_others_run()
        told = await shop.store.redrive("orders.dead", RedriveOrder(most=1_000, is_dry_run=True))
        await let_others_run()
        moved = await shop.store.redrive("orders.dead", RedriveOrder(most=100))
    assert steps.longest < LINES_MAX / 2, steps.culprit
    assert [len(each.moved["orders"]) for each in (told, moved)] == [1_000, 100]
    await shop.close()


async def test_dead_letters_behind_many_that_cannot_go_are_redriven() -> None:
    shop = await a_shop()
    await shop.store.create("gone", replace(QUEUE, deliveries_max=1, dead_letters="orders.dead"))
    await bury(shop, "gone", 2_000)
    await shop.store.delete("gone")
    await shop.store.change("orders", replace(QUEUE, deliveries_max=1))
    await bury(shop, "orders", 3)
    found = await shop.store.redrive("orders.dead", RedriveOrder(most=100))
    assert (len(found.moved["orders"]), len(found.without_origin), found.remaining) == (3, 100, 2_000)
    await shop.close()


async def test_messages_that_expire_together_have_no_long_step() -> None:
    shop = await a_shop()
    await shop.store.change("orders", replace(QUEUE, retention_ms=DELAY_MS))
    await shop.store.send("orders", Drafts(bodies=[b"x"] * (TURN_ROWS + 100), groups=[b"a"] * (TURN_ROWS + 100)))
    await elapse(DELAY_MS / 1_000)
    with counted() as steps:
        await shop.store.tidy()
        await settled(shop)
    assert (await shop.store.counts("orders")).ready == (0,) * 5
    assert steps.longest < LINES_MAX, steps.culprit
    await shop.close()


async def test_a_queue_with_nothing_to_tidy_costs_the_others_nothing() -> None:
    shop = await a_shop()
    await shop.store.change("orders", replace(QUEUE, retention_ms=DELAY_MS))
    for queue in range(100):
        await shop.store.create(f"quiet-{queue}", replace(QUEUE, retention_ms=DELAY_MS))
        await shop.send(b"x", queue=f"quiet-{queue}")
    await shop.store.tidy()
    with counted() as steps:
        await shop.store.tidy()
    assert steps.total < 1_000, steps.culprit
    await elapse(DELAY_MS / 1_000)
    await shop.store.tidy()
    assert (await shop.store.counts("quiet-7")).ready == (0,) * 5, "what expires has a timer"
    await shop.close()


async def test_a_scrape_of_many_queues_has_no_long_step() -> None:
    shop = await a_shop()
    for queue in range(300):
        await shop.store.create(f"quiet-{queue}", QUEUE)
    with counted() as steps:
        assert len(await shop.store.queues(most=10)) == 10
    assert steps.total < 300, "a page of names costs what it returns"
    names = await shop.store.queues(most=300)
    with counted() as steps:
        assert len(await shop.store.summaries(names)) == 300
    assert steps.longest < LINES_MAX / 10, steps.culprit
    await shop.close()


async def test_ids_whose_window_ends_at_once_are_forgotten_in_turns() -> None:
    shop = await a_shop()
    await shop.store.change("orders", replace(QUEUE, dedup_scope=DedupScope.WINDOW, dedup_window_ms=DELAY_MS))
    for first in range(0, MANY, TURN_ROWS):
        ids = [b"%d" % number for number in range(first, first + TURN_ROWS)]
        await shop.store.send("orders", Drafts(bodies=[b"x"] * TURN_ROWS, dedup_ids=ids))
    await shop.store.purge("orders")
    await settled(shop)
    await elapse(DELAY_MS / 1_000)
    with counted() as steps:
        await shop.store.counts("orders")
        await shop.store.tidy()
    assert steps.longest < 5 * MANY, steps.culprit
    assert len(shop.shard.queue("orders").state.dedup) == 0
    again = Drafts(bodies=[b"x"], dedup_ids=[b"7"])
    assert (await shop.store.send("orders", again))[0] in (await shop.lease()).ids, "it is free"
    await shop.close()


async def test_a_page_behind_a_long_stretch_of_settled_numbers_has_no_long_step() -> None:
    shop = await a_shop()
    await shop.store.send("orders", Drafts(bodies=[b"x"], groups=[b"a"]))
    for _ in range(3):
        await shop.send(*[b"x"] * MANY)
        await shop.drain()
    await grouped(shop)
    await grouped(shop)
    with counted() as steps:
        first = await shop.store.live("orders", after="", most=1, with_bodies=False)
        second = await shop.store.live("orders", after=first.next, most=1, with_bodies=False)
    assert steps.longest < 2 * MANY, steps.culprit
    assert (len(first.key), len(second.key)) == (1, 1), "settled numbers are passed over"
    assert [each for page in (first, second) for each in page.ranges if each.lane == Tier.NORMAL] == [
        NumberRange(Tier.NORMAL, 0, 3 * MANY + 2),
        NumberRange(Tier.NORMAL, 3 * MANY + 2, 3 * MANY + 3),
    ]
    await shop.close()


@pytest.mark.real_time
async def test_leases_that_are_out_begin_again_off_the_loop(tmp_path: Path) -> None:
    async with ThreadWorkers(1, halt) as workers:
        runtime = system_runtime(tmp_path, workers)
        store = await EmbeddedStore.open(runtime, "store", LogSettings())
        await store.create("orders", QUEUE)
        await store.send("orders", Drafts(bodies=[b"x"] * MANY))
        await asyncio.gather(*(store.lease("orders", want=1) for _ in range(MANY)))
        (shard,) = store._shards.all
        save(runtime.disk, folders_of("store", 0).snapshots, shard.memory, shard.log.end_offset)
        await store.close()
        with counted() as steps:
            # Lines of the thread that runs the loop.
            store = await EmbeddedStore.open(runtime, "store", LogSettings())
        assert (await store.counts("orders")).leased == MANY
        await store.close()
    assert steps.total < MANY, steps.culprit
