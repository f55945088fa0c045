"""What every store promises about queues: made, changed, emptied, counted, removed."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from penstock.contract.limits import RETRY_AFTER_MS_MAX, RETRY_AFTER_MS_MIN, RETRY_AFTER_MS_UNKNOWN
from penstock.contract.messages import Tier
from penstock.contract.names import BadName
from penstock.contract.queue_settings import DAY_MS, BadSettings, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.core.queue.queue import QueueFull
from penstock.store.errors import QueueExists, QueueNotFound
from penstock.store.interface import EscalationOrder, RedriveOrder
from tests.conformance.stores import DONE, STALE, Stage, begin, bodies, drain, every_store, is_empty_handed, lease, send


@every_store
async def test_creating_a_queue_again_with_equal_settings_changes_nothing(stage: Stage) -> None:
    await send(stage, b"a")
    await stage.store.create("orders", QueueSettings())
    assert await drain(stage) == [b"a"]


@every_store
async def test_creating_a_queue_again_with_other_settings_is_refused_by_name(stage: Stage) -> None:
    with pytest.raises(QueueExists, match="orders"):
        await stage.store.create("orders", QueueSettings(lease_ms=1))
    assert len(await send(stage, b"a")) == 1


@every_store
async def test_many_may_create_the_same_queue_at_once(stage: Stage) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(stage.store.create("mail", QueueSettings()))
    await send(stage, b"a", queue="mail")
    assert await drain(stage, queue="mail") == [b"a"]


@every_store
async def test_a_queue_that_is_not_there_is_named_by_every_verb(stage: Stage) -> None:
    store = stage.store
    for verb in (
        store.change("nowhere", QueueSettings()),
        store.delete("nowhere"),
        store.send("nowhere", Drafts(bodies=[b"a"])),
        store.send("nowhere", Drafts(bodies=[])),
        store.lease("nowhere", want=1),
        store.ack("nowhere", []),
        store.ack_and_lease("nowhere", [], want=1),
        store.release("nowhere", []),
        store.extend("nowhere", [], lease_ms=1),
        store.purge("nowhere"),
        store.counts("nowhere"),
        store.describe("nowhere"),
        store.peek("nowhere", most=1),
        store.look("nowhere", "1-2"),
        store.explain("nowhere", "1-2"),
        store.receipts("nowhere", []),
        store.escalate("nowhere", [], EscalationOrder(tier=0, actor="ada", reason="")),
        store.audit("nowhere", most=1),
        store.redrive("nowhere", RedriveOrder(most=1)),
    ):
        with pytest.raises(QueueNotFound, match="nowhere"):
            await verb


@every_store
async def test_queues_do_not_see_each_others_messages(stage: Stage) -> None:
    await stage.store.create("mail", QueueSettings())
    await send(stage, b"order")
    await send(stage, b"letter", queue="mail")
    assert await drain(stage, queue="mail") == [b"letter"]
    assert await drain(stage) == [b"order"]


@every_store
async def test_a_queue_may_be_called_what_an_address_can_hold(stage: Stage) -> None:
    names = ["a", "0", "Orders_2-b.fifo", "x" * 80, "q", "-", "_", "a..b"]
    for name in names:
        await stage.store.create(name, QueueSettings())
    await stage.crash()
    assert await stage.store.queues() == sorted([*names, "orders"])


@every_store
async def test_a_queue_called_otherwise_is_refused_and_the_limit_named(stage: Stage) -> None:
    for name in ("", ".", "..", ".hidden", "a/b", "a b", "заказы", "a\n", "a%2fb", "q_1", "q_", ".dead", "q_1.dead"):
        with pytest.raises(BadName, match="queue"):
            await stage.store.create(name, QueueSettings(deliveries_max=0))
        if name:
            with pytest.raises(BadName, match="dead_letters"):
                await stage.store.change("orders", QueueSettings(dead_letters=name))
    with pytest.raises(BadName, match="QUEUE_NAME_CHARACTERS_MAX"):
        await stage.store.create("x" * 81, QueueSettings())
    assert await stage.store.queues() == ["orders"]


@every_store
async def test_dead_letters_can_be_named_after_the_longest_name(stage: Stage) -> None:
    name = "x" * 80
    await stage.store.create(name, QueueSettings(deliveries_max=1))
    await send(stage, b"poison", queue=name)
    await stage.store.release(name, (await lease(stage, queue=name)).receipts())
    await stage.store.tidy()
    assert await drain(stage, queue=f"{name}.dead") == [b"poison"]
    await stage.store.delete(f"{name}.dead")
    await stage.store.create(f"{name}.dead", QueueSettings(deliveries_max=0))


@every_store
async def test_a_deleted_queue_made_again_starts_empty(stage: Stage) -> None:
    before = await send(stage, b"a", b"b")
    held = await lease(stage, 1)
    await stage.store.delete("orders")
    with pytest.raises(QueueNotFound):
        await stage.store.counts("orders")
    await stage.store.create("orders", QueueSettings(lease_ms=5_000))
    assert (await stage.store.counts("orders")).live == 0
    assert not set(await send(stage, b"a", b"b")) & set(before)
    await lease(stage, 1)
    assert await stage.store.ack("orders", held.receipts()) == [STALE]
    assert (await stage.store.counts("orders")).live == 2


@every_store
async def test_the_dead_letters_of_a_deleted_queue_stay(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=1, dead_letters="graves"))
    await send(stage, b"poison")
    await stage.store.release("orders", (await lease(stage)).receipts())
    await stage.store.tidy()
    await stage.store.delete("orders")
    assert await drain(stage, queue="graves") == [b"poison"]


@every_store
async def test_a_queue_may_be_deleted_while_the_store_tidies(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=1, retention_ms=DAY_MS))
    await send(stage, *[b"poison"] * 250)
    await stage.store.release("orders", (await lease(stage, 250)).receipts())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(stage.store.tidy())
        tasks.create_task(stage.store.delete("orders"))
    await stage.reopen()
    with pytest.raises(QueueNotFound):
        await stage.store.counts("orders")


@every_store
async def test_workers_may_be_busy_with_a_queue_that_is_deleted(stage: Stage) -> None:
    await send(stage, b"a", b"b")
    held = await lease(stage, 1)
    async with asyncio.TaskGroup() as tasks:
        leased = await begin(tasks, stage.store.lease("orders", want=1))
        acked = await begin(tasks, stage.store.ack("orders", held.receipts()))
        await stage.store.delete("orders")
    delivery = leased.result()
    assert delivery is not None
    assert bodies(delivery) == [b"b"]
    assert acked.result() == [DONE]


@every_store
async def test_changed_settings_hold_from_now_on(stage: Stage) -> None:
    await send(stage, b"a")
    await stage.store.change("orders", QueueSettings(lease_ms=1_000))
    first = await lease(stage)
    await stage.advance(1_000)
    assert (await lease(stage)).ids == first.ids


@every_store
async def test_a_queue_does_not_become_fifo_later(stage: Stage) -> None:
    with pytest.raises(BadSettings, match="is_fifo"):
        await stage.store.change("orders", QueueSettings(is_fifo=True))


@every_store
async def test_a_queue_is_not_its_own_dead_letter_queue(stage: Stage) -> None:
    with pytest.raises(BadSettings, match="dead_letters"):
        await stage.store.change("orders", QueueSettings(dead_letters="orders"))
    with pytest.raises(BadSettings, match="dead_letters"):
        await stage.store.create("mail", QueueSettings(dead_letters="mail"))


@every_store
async def test_a_paused_queue_takes_and_settles_but_gives_nothing_out(stage: Stage) -> None:
    settings = QueueSettings()
    await send(stage, b"a", b"b")
    held = await lease(stage, 1)
    await stage.store.change("orders", replace(settings, is_paused=True))
    assert await is_empty_handed(stage)
    await send(stage, b"c")
    assert await stage.store.ack("orders", held.receipts()) == [DONE]
    await stage.store.change("orders", settings)
    assert await drain(stage) == [b"b", b"c"]


@every_store
async def test_purging_settles_everything_leased_or_not(stage: Stage) -> None:
    await send(stage, *[b"x"] * 5)
    later_ms = stage.now_ms() + DAY_MS
    await stage.store.send("orders", Drafts(bodies=[b"later"], visible_at_ms=[later_ms]))
    held = await lease(stage, 2)
    assert await stage.store.purge("orders") == 6
    assert await stage.store.ack("orders", held.receipts()) == [STALE, STALE]
    assert (await stage.store.counts("orders")).live == 0
    assert await stage.store.purge("orders") == 0
    await stage.advance(DAY_MS)
    assert await is_empty_handed(stage)
    await send(stage, b"after")
    assert await drain(stage) == [b"after"]


@every_store
async def test_counts_are_by_tier_and_by_place(stage: Stage) -> None:
    later_ms = stage.now_ms() + DAY_MS
    tiers = bytes([Tier.CRITICAL, Tier.NORMAL, Tier.NORMAL, Tier.BACKGROUND, Tier.LOW])
    await stage.store.send("orders", Drafts(bodies=[b"x"] * 5, tiers=tiers, visible_at_ms=[0, 0, 0, 0, later_ms]))
    counts = await stage.store.counts("orders")
    assert (counts.ready, counts.leased, counts.delayed, counts.live) == ((1, 0, 2, 0, 1), 0, 1, 5)
    held = await lease(stage, 4)
    counts = await stage.store.counts("orders")
    assert (counts.ready, counts.leased, counts.delayed, counts.live) == ((0, 0, 0, 0, 0), 4, 1, 5)
    await stage.store.ack("orders", held.receipts()[:3])
    assert (await stage.store.counts("orders")).live == 2


@every_store
async def test_counts_see_what_time_has_done(stage: Stage) -> None:
    await stage.store.send("orders", Drafts(bodies=[b"x"], visible_at_ms=[stage.now_ms() + 5_000]))
    await stage.advance(5_000)
    counts = await stage.store.counts("orders")
    assert (counts.ready[Tier.NORMAL], counts.delayed) == (1, 0)
    await lease(stage, lease_ms=1_000)
    await stage.advance(1_000)
    counts = await stage.store.counts("orders")
    assert (counts.ready[Tier.NORMAL], counts.leased) == (1, 0)


@every_store
async def test_the_oldest_waiting_message_of_each_tier_is_known(stage: Stage) -> None:
    before_ms = stage.now_ms()
    await send(stage, b"old")
    sent_ms = stage.now_ms()
    await stage.advance(1_000)
    await send(stage, b"new")
    oldest = (await stage.store.counts("orders")).oldest_sent_at_ms
    found = oldest[Tier.NORMAL]
    assert found is not None
    assert before_ms <= found <= sent_ms
    assert oldest == (None, None, found, None, None)
    delivery = await lease(stage)
    assert delivery.sent_at_ms[0] == found
    assert delivery.sent_at_ms[1] >= sent_ms + 1_000
    assert (await stage.store.counts("orders")).oldest_sent_at_ms == (None,) * 5


@every_store
async def test_a_full_queue_refuses_the_whole_batch_and_says_when_to_come_back(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(size_max=10, reserve_percent=(0,) * 5))
    await send(stage, *[b"x"] * 8)
    with pytest.raises(QueueFull) as refused:
        await send(stage, *[b"x"] * 3)
    assert RETRY_AFTER_MS_MIN <= refused.value.retry_after_ms <= RETRY_AFTER_MS_MAX
    assert (await stage.store.counts("orders")).live == 8
    await send(stage, *[b"x"] * 2)
    held = await lease(stage, 1)
    with pytest.raises(QueueFull):
        await send(stage, b"x")
    await stage.store.ack("orders", held.receipts())
    await send(stage, b"x")


@every_store
async def test_a_queue_that_drains_fast_asks_for_a_shorter_wait(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(size_max=1_000, reserve_percent=(0,) * 5))
    await send(stage, *[b"x"] * 1_000)
    with pytest.raises(QueueFull) as stuck:
        await send(stage, b"x")
    held = await lease(stage, 500)
    await stage.store.ack("orders", held.receipts())
    await send(stage, *[b"x"] * 500)
    with pytest.raises(QueueFull) as moving:
        await send(stage, b"x")
    assert moving.value.retry_after_ms < stuck.value.retry_after_ms


@every_store
async def test_a_queue_takes_exactly_as_many_as_its_size_of_any_tier(stage: Stage) -> None:
    async def take(queue: str, tier: Tier, count: int) -> None:
        await stage.store.send(queue, Drafts(bodies=[b"x"] * count, tiers=bytes([tier]) * count))

    for tier in Tier:
        queue = f"all-{tier.name}"
        await stage.store.create(queue, QueueSettings(size_max=100))
        await take(queue, tier, 99)
        with pytest.raises(QueueFull):
            await take(queue, tier, 2)
        await take(queue, tier, 1)
        with pytest.raises(QueueFull) as full:
            await take(queue, tier, 1)
        assert full.value.retry_after_ms == RETRY_AFTER_MS_UNKNOWN
        assert (await stage.store.counts(queue)).live == 100


@every_store
async def test_with_reserves_a_filling_queue_refuses_the_least_urgent_first(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(size_max=100, reserve_percent=(0, 2, 5, 10, 20)))

    async def fill(tier: Tier) -> int:
        """Send one by one until refused, and return how full the queue is then."""
        try:
            while True:
                await stage.store.send("orders", Drafts(bodies=[b"x"], tiers=bytes([tier])))
        except QueueFull:
            return (await stage.store.counts("orders")).live

    assert [await fill(tier) for tier in reversed(Tier)] == [80, 90, 95, 98, 100]


@every_store
async def test_a_message_older_than_the_queue_keeps_it_is_let_go(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(retention_ms=10_000))
    await stage.store.send("orders", Drafts(bodies=[b"a", b"b", b"c"], groups=[b"", b"g", b""]))
    await stage.advance(5_000)
    await send(stage, b"young")
    await stage.advance(5_000)
    await stage.store.tidy()
    assert await drain(stage) == [b"young"]
    await stage.reopen()
    assert (await stage.store.counts("orders")).live == 0


@every_store
async def test_tidying_once_lets_go_of_everything_that_is_too_old(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(retention_ms=10_000))
    for _ in range(3):
        await stage.store.send("orders", Drafts(bodies=[b"x"] * 4_000, groups=[b"g"] * 4_000))
    await stage.advance(10_000)
    await stage.store.tidy()
    assert (await stage.store.counts("orders")).live == 0


@every_store
async def test_a_leased_message_is_never_let_go_for_its_age(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(retention_ms=10_000))
    await send(stage, b"a")
    held = await lease(stage, lease_ms=20_000)
    await stage.advance(11_000)
    await stage.store.tidy()
    assert await stage.store.ack("orders", held.receipts()) == [DONE]


@every_store
async def test_messages_are_kept_for_ever_without_a_retention(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(retention_ms=0))
    await send(stage, b"a")
    await stage.advance(30 * DAY_MS)
    await stage.store.tidy()
    assert bodies(await lease(stage)) == [b"a"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("lease_ms", 0), ("retention_ms", -1), ("deliveries_max", 10**6), ("weights", (1, 2)), ("size_max", -1)],
)
def test_a_setting_out_of_bounds_is_named(name: str, value: Any) -> None:
    with pytest.raises(BadSettings, match=name):
        QueueSettings(**{name: value})
