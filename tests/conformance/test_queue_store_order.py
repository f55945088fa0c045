"""What every store promises about order: shares of tiers, groups in line, no tier starved."""

from collections import Counter

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import MINUTE_MS, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.interface import Delivery, Release
from tests.conformance.stores import DONE, STALE, Stage, bodies, drain, every_store, is_empty_handed, lease, send

FIFO = QueueSettings(is_fifo=True, backoff_ms_base=0)


async def fifo(stage: Stage, settings: QueueSettings = FIFO) -> None:
    """Put a FIFO queue where `orders` was."""
    await stage.store.delete("orders")
    await stage.store.create("orders", settings)


async def send_groups(stage: Stage, *rows: tuple[bytes, bytes], tiers: bytes | None = None) -> None:
    await stage.store.send(
        "orders", Drafts(bodies=[body for _, body in rows], groups=[group for group, _ in rows], tiers=tiers)
    )


@every_store
async def test_messages_of_one_tier_come_in_the_order_of_sending(stage: Stage) -> None:
    for number in range(30):
        await send(stage, b"%d" % number)
    assert await drain(stage, want=7) == [b"%d" % number for number in range(30)]


@every_store
async def test_saturated_tiers_share_by_their_weights(stage: Stage) -> None:
    for want in (1, 7, 31):
        await stage.store.purge("orders")
        for tier in Tier:
            await stage.store.send("orders", Drafts(bodies=[b"x"] * 200, tiers=bytes([tier]) * 200))
        served: Counter[int] = Counter()
        while served.total() < 310:
            served.update((await lease(stage, min(want, 310 - served.total()))).tiers)
        for tier, share in zip(Tier, (160, 80, 40, 20, 10), strict=True):
            assert abs(served[tier] - share) <= 2, (want, served)


@every_store
async def test_a_queue_may_have_weights_of_its_own(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(weights=(1, 1, 1, 1, 1)))
    for tier in Tier:
        await stage.store.send("orders", Drafts(bodies=[b"x"] * 50, tiers=bytes([tier]) * 50))
    served = Counter((await lease(stage, 100)).tiers)
    assert all(abs(served[tier] - 20) <= 1 for tier in Tier)


@every_store
async def test_an_idle_tier_costs_the_others_nothing(stage: Stage) -> None:
    tiers = bytes([Tier.LOW] * 5 + [Tier.BACKGROUND] * 5)
    await stage.store.send("orders", Drafts(bodies=[b"x"] * 10, tiers=tiers))
    assert len(await lease(stage, 10)) == 10


@every_store
async def test_a_strict_queue_serves_the_most_urgent_first(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(is_strict=True))
    tiers = bytes([4, 0, 3, 1, 2, 0])
    await stage.store.send("orders", Drafts(bodies=[b"%d" % tier for tier in tiers], tiers=tiers))
    assert await drain(stage, want=1) == [b"0", b"0", b"1", b"2", b"3", b"4"]


@every_store
async def test_a_message_that_waits_too_long_moves_up_a_tier(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(aging_ms=(0, 0, 0, 30 * MINUTE_MS, 60 * MINUTE_MS)))
    await stage.store.send("orders", Drafts(bodies=[b"low", b"background"], tiers=bytes([Tier.LOW, Tier.BACKGROUND])))
    await stage.advance(30 * MINUTE_MS)
    assert (await stage.store.counts("orders")).ready == (0, 0, 1, 0, 1)
    await stage.advance(30 * MINUTE_MS)
    assert (await stage.store.counts("orders")).ready == (0, 0, 1, 1, 0)
    delivery = await lease(stage)
    assert dict(zip(bodies(delivery), delivery.tiers, strict=True)) == {b"low": Tier.NORMAL, b"background": Tier.LOW}


@every_store
async def test_saturated_tiers_share_by_their_weights_and_groups_of_a_tier_alike(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(noisy_percent=100, noisy_time_percent=100))
    for tier in Tier:
        groups = [b"a"] * 150 + [b"b", b"c", b"d"] * 50
        await stage.store.send("orders", Drafts(bodies=[b""] * 300, tiers=bytes([tier]) * 300, groups=groups))
    served: Counter[tuple[int, bytes]] = Counter()
    while served.total() < 310:
        held = await lease(stage, min(31, 310 - served.total()))
        assert held.groups is not None
        served.update(zip(held.tiers, map(bytes, held.groups), strict=True))
    for tier, share in zip(Tier, (160, 80, 40, 20, 10), strict=True):
        found = [served[tier, group] for group in (b"a", b"b", b"c", b"d")]
        assert abs(sum(found) - share) <= 5, served
        assert max(found) - min(found) <= 2, served


@every_store
async def test_a_noisy_group_of_a_standard_queue_waits_behind_quiet_ones(stage: Stage) -> None:
    await send_groups(stage, *[(b"noisy", b"noise")] * 50, (b"quiet", b"word"), (b"calm", b"word"))
    assert bodies(await lease(stage, 4)).count(b"word") == 2


@every_store
async def test_messages_of_a_group_that_come_back_together_take_turns_with_other_groups(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(noisy_percent=100, noisy_time_percent=100, deliveries_max=0))

    async def hold() -> Delivery:
        await stage.store.purge("orders")
        await send_groups(stage, *[(b"many", b"many")] * 30)
        held = await lease(stage, 30, lease_ms=1_000)
        await stage.advance(100)
        await send_groups(stage, *[(b"few", b"few")] * 2)
        return held

    async def take_turns() -> bool:
        return bodies(await lease(stage, 6)).count(b"few") == 2

    await stage.store.release("orders", (await hold()).receipts(), Release(delay_ms=5_000))
    await stage.advance(5_000)
    assert await take_turns(), "woken"
    await stage.store.release("orders", (await hold()).receipts(), Release(delay_ms=0))
    assert await take_turns(), "released"
    await hold()
    await stage.advance(1_000)
    assert await take_turns(), "lapsed"


@every_store
async def test_a_group_that_holds_much_is_served_after_quiet_ones(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(noisy_time_percent=100))
    await send_groups(stage, *[(b"loud", b"%d" % number) for number in range(100)])
    held = await lease(stage, 40)
    await send_groups(stage, *[(b"quiet", b"quiet")] * 3, (b"", b"plain"))
    counts = await stage.store.counts("orders")
    assert (counts.noisy_groups, counts.noisy_ready, counts.noisy_leased) == (1, 60, 40)
    found = bodies(await lease(stage, 6))
    assert sorted(found[:4]) == [b"plain", b"quiet", b"quiet", b"quiet"]
    assert found[4:] == [b"40", b"41"], "what quiet ones leave is the noisy one's"
    assert bodies(await lease(stage, 2)) == [b"42", b"43"], "no lease waits for quiet messages that are not there"

    await stage.store.ack("orders", held.receipts())
    assert (await stage.store.counts("orders")).noisy_groups == 0
    await send_groups(stage, (b"quiet", b"quiet"))
    assert sorted(bodies(await lease(stage, 2))) == [b"44", b"quiet"]


@every_store
async def test_of_noisy_groups_the_one_that_holds_least_is_served_first(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(noisy_time_percent=100, noisy_leased_min=3))
    for group, count in ((b"louder", 9), (b"loud", 5)):
        await send_groups(stage, *[(group, b"first")] * count)
        assert len(await lease(stage, count)) == count
    await send_groups(stage, *[(b"louder", b"louder")] * 9, *[(b"loud", b"loud")] * 9)
    assert bodies(await lease(stage, 4)) == [b"loud"] * 4
    assert sorted(bodies(await lease(stage, 4))) == [b"loud"] * 2 + [b"louder"] * 2


@every_store
async def test_few_messages_that_take_long_make_a_group_noisy(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(noisy_percent=100, deliveries_max=0))
    await send_groups(stage, *[(b"slow", b"slow")] * 6, (b"spare", b"spare"))
    held = await lease(stage, 7, lease_ms=600_000)
    receipts = dict(zip(bodies(held), held.receipts(), strict=True))
    await stage.advance(1_000)
    assert await stage.store.ack("orders", [receipts[b"slow"]]) == [DONE]
    left = [receipt for receipt in held.receipts() if receipt not in (receipts[b"slow"], receipts[b"spare"])]
    assert set(await stage.store.release("orders", left, Release(delay_ms=0, is_untouched=True))) == {DONE}
    await send_groups(stage, (b"quick", b"quick"), (b"", b"plain"))
    counts = await stage.store.counts("orders")
    assert (counts.noisy_groups, counts.noisy_ready, counts.noisy_leased) == (1, 5, 0)
    found = bodies(await lease(stage, 4))
    assert sorted(found[:2]) == [b"plain", b"quick"]
    assert found[2:] == [b"slow", b"slow"], "what quiet ones leave is the noisy one's"


@every_store
async def test_time_is_forgotten_by_half_each_minute_and_with_the_last_message(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(noisy_percent=100, noisy_time_percent=60, deliveries_max=0))

    async def work(group: bytes, took_ms: int) -> None:
        await send_groups(stage, (group, b""))
        held = await lease(stage, 1, lease_ms=600_000)
        await stage.advance(took_ms)
        assert await stage.store.ack("orders", held.receipts()) == [DONE]

    async def noisy() -> int:
        return (await stage.store.counts("orders")).noisy_groups

    for group in (b"early", b"late"):
        await send_groups(stage, (group, b"stays"))
    assert len(await lease(stage, 2, lease_ms=6_000_000)) == 2
    await work(b"early", 16_000)
    assert await noisy() == 1, "it took all there was"
    await work(b"late", 11_000)
    assert await noisy() == 0, "16 of 27 seconds, or 8 of 19 in the next minute, is less than 60 percent"
    await stage.advance(120_000)
    await work(b"late", 10_000)
    assert await noisy() == 1, "what the first one took is halved twice"
    await work(b"passing", 90_000)
    assert await noisy() == 0, "one that has no messages any more is not there"
    await work(b"passing", 10)
    assert await noisy() == 0, "and starts at zero"


@every_store
async def test_quiet_groups_are_found_behind_very_many_messages_of_a_noisy_one(stage: Stage) -> None:
    settings = QueueSettings(noisy_time_percent=100, noisy_leased_min=3, noisy_percent=50)
    await stage.store.change("orders", settings)
    await send_groups(stage, *[(b"loud", b"loud")] * 3_000)
    assert len(await lease(stage, 10)) == 10
    await send_groups(stage, *[(b"a", b"quiet")] * 1_400, *[(b"b", b"quiet")] * 1_400)
    for _ in range(14):
        held = await lease(stage, 200)
        assert set(bodies(held)) == {b"quiet"}
        assert set(await stage.store.ack("orders", held.receipts())) == {DONE}
    assert set(bodies(await lease(stage, 5))) == {b"loud"}


@every_store
async def test_a_message_that_lapsed_often_enough_goes_behind_the_others(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(back_after_deliveries=2, deliveries_max=0))
    for group in (b"", b"g"):
        for name in (b"bad", b"good", b"better"):
            await send_groups(stage, (group, name))
            await stage.advance(1)
        assert bodies(await lease(stage, 1, lease_ms=1_000)) == [b"bad"]
        await stage.advance(1_000)
        assert bodies(await lease(stage, 1, lease_ms=1_000)) == [b"bad"], "once is not often"
        await stage.advance(1_000)
        assert await drain(stage, want=1) == [b"good", b"better", b"bad"]


@every_store
async def test_a_group_is_in_order_and_leased_to_one_worker_at_a_time(stage: Stage) -> None:
    await fifo(stage)
    await send_groups(stage, (b"g", b"1"), (b"g", b"2"), (b"g", b"3"))
    held = await lease(stage, 2)
    assert bodies(held) == [b"1", b"2"]
    assert await is_empty_handed(stage)
    assert await stage.store.ack("orders", held.receipts()[:1]) == [DONE]
    assert await is_empty_handed(stage)
    assert await stage.store.ack("orders", held.receipts()[1:]) == [DONE]
    assert bodies(await lease(stage)) == [b"3"]


@every_store
async def test_a_group_goes_on_in_the_call_that_acks_its_head(stage: Stage) -> None:
    await fifo(stage)
    await send_groups(stage, (b"g", b"1"), (b"g", b"2"))
    held = await lease(stage, 1)
    outcomes, delivery = await stage.store.ack_and_lease("orders", held.receipts(), want=10)
    assert delivery is not None
    assert (outcomes, bodies(delivery)) == ([DONE], [b"2"])
    assert await stage.store.ack_and_lease("orders", held.receipts(), want=10) == ([STALE], None)


@every_store
async def test_other_groups_go_on_while_one_is_leased(stage: Stage) -> None:
    await fifo(stage)
    await send_groups(stage, (b"a", b"a1"), (b"a", b"a2"), (b"b", b"b1"), (b"", b"free"), (b"b", b"b2"))
    held = await lease(stage, 1)
    assert bodies(held) == [b"a1"]
    assert sorted(bodies(await lease(stage, 10))) == [b"b1", b"b2", b"free"]
    await stage.store.ack("orders", held.receipts())
    assert bodies(await lease(stage, 10)) == [b"a2"]


@every_store
async def test_a_failed_head_keeps_its_group_closed_through_its_rest(stage: Stage) -> None:
    await fifo(stage)
    await send_groups(stage, (b"g", b"1"), (b"g", b"2"), (b"other", b"x"))
    held = await lease(stage, 1)
    await stage.store.release("orders", held.receipts(), Release(delay_ms=5_000))
    assert await drain(stage) == [b"x"]
    await stage.advance(4_900)
    assert await is_empty_handed(stage)
    await stage.advance(100)
    assert await drain(stage) == [b"1", b"2"]


@every_store
async def test_what_follows_a_failed_head_in_its_lease_may_still_be_acked(stage: Stage) -> None:
    await fifo(stage)
    await send_groups(stage, *[(b"g", b"%d" % number) for number in range(4)])
    held = await lease(stage, 3)
    receipts = held.receipts()
    assert await stage.store.release("orders", receipts[:1], Release(delay_ms=0)) == [DONE]
    assert await is_empty_handed(stage)
    assert await stage.store.ack("orders", receipts[1:2]) == [DONE]
    assert await stage.store.release("orders", receipts[2:], Release(delay_ms=0)) == [DONE]
    assert bodies(await lease(stage)) == [b"0", b"2", b"3"]


@every_store
async def test_a_group_that_opens_early_is_served_when_its_first_message_is_back(stage: Stage) -> None:
    await fifo(stage, QueueSettings(is_fifo=True, opens_early=True))
    await send_groups(stage, (b"g", b"1"), (b"g", b"2"), (b"g", b"3"), (b"h", b"4"))
    held = await lease(stage, 2)
    assert bodies(held) == [b"1", b"2"]
    first, second = held.receipts()
    assert await stage.store.release("orders", [second], Release(delay_ms=0)) == [DONE]
    assert bodies(await lease(stage)) == [b"4"], "nothing overtakes what is leased"
    assert await stage.store.release("orders", [first], Release(delay_ms=0)) == [DONE]
    held = await lease(stage, 2)
    assert bodies(held) == [b"1", b"2"]
    assert await stage.store.release("orders", held.receipts()[:1], Release(delay_ms=0)) == [DONE]
    again = await lease(stage)
    assert bodies(again) == [b"1"], "the second is leased, and the third behind it"
    assert await stage.store.ack("orders", again.receipts()) == [DONE]
    assert await is_empty_handed(stage)
    assert await stage.store.ack("orders", held.receipts()[1:]) == [DONE]
    assert bodies(await lease(stage)) == [b"3"]


@every_store
async def test_what_lapsed_of_a_group_and_is_held_again_closes_the_group(stage: Stage) -> None:
    await fifo(stage)
    await send_groups(stage, (b"g", b"1"), (b"g", b"2"))
    held = await lease(stage, 1, lease_ms=1_000)
    await stage.advance(1_000)
    assert await stage.store.extend("orders", held.receipts(), lease_ms=1_000, outlives=True) == [DONE]
    assert await is_empty_handed(stage)
    await stage.advance(1_000)
    assert bodies(await lease(stage)) == [b"1", b"2"]


@every_store
async def test_a_group_whose_lease_lapses_comes_back_in_order(stage: Stage) -> None:
    await fifo(stage)
    await send_groups(stage, *[(b"g", b"%d" % number) for number in range(4)])
    held = await lease(stage, 3, lease_ms=1_000)
    await stage.store.ack("orders", held.receipts()[1:2])
    await stage.advance(1_000)
    again = await lease(stage)
    assert bodies(again) == [b"0", b"2", b"3"]
    assert list(again.deliveries) == [2, 2, 1]
    assert await stage.store.ack("orders", held.receipts()) == [STALE] * 3


@every_store
async def test_a_scheduled_head_holds_back_what_was_sent_after_it(stage: Stage) -> None:
    await fifo(stage)
    await stage.store.send(
        "orders", Drafts(bodies=[b"1", b"2"], groups=[b"g", b"g"], visible_at_ms=[stage.now_ms() + 5_000, 0])
    )
    assert await is_empty_handed(stage)
    await stage.advance(5_000)
    assert await drain(stage) == [b"1", b"2"]


@every_store
async def test_urgency_does_not_reorder_a_group_but_brings_it_forward(stage: Stage) -> None:
    await fifo(stage, QueueSettings(is_fifo=True, is_strict=True))
    await send_groups(stage, (b"", b"plain"), (b"g", b"1"), (b"g", b"2"), tiers=bytes([2, 4, 0]))
    assert await drain(stage) == [b"1", b"2", b"plain"]


@every_store
async def test_burying_the_head_opens_its_group(stage: Stage) -> None:
    await fifo(stage, QueueSettings(is_fifo=True, deliveries_max=1))
    await send_groups(stage, (b"g", b"poison"), (b"g", b"next"))
    await stage.store.release("orders", (await lease(stage, 1)).receipts(), Release(error="no"))
    await stage.store.tidy()
    assert bodies(await lease(stage)) == [b"next"]


@every_store
async def test_groups_stay_in_order_across_a_crash(stage: Stage) -> None:
    await fifo(stage)
    await send_groups(stage, *[(b"ab"[row % 2 : row % 2 + 1], b"%d" % row) for row in range(10)])
    held = await lease(stage, 1)
    await stage.store.release("orders", held.receipts(), Release(delay_ms=0))
    await stage.crash()
    found = await drain(stage, want=3)
    assert [body for body in found if int(body) % 2 == 0] == [b"0", b"2", b"4", b"6", b"8"]
    assert [body for body in found if int(body) % 2 == 1] == [b"1", b"3", b"5", b"7", b"9"]


@every_store
async def test_what_is_behind_a_spent_message_of_a_group_comes_with_the_same_lease(stage: Stage) -> None:
    await stage.store.create("lines", QueueSettings(is_fifo=True, deliveries_max=1))
    for is_counted in (False, True):
        await stage.store.send("lines", Drafts(bodies=[b"a1", b"a2", b"b1"], groups=[b"a", b"a", b"b"]))
        assert bodies(await lease(stage, 1, queue="lines", lease_ms=1_000)) == [b"a1"]
        await stage.advance(1_000)
        if is_counted:
            # A look finds that it is stuck, and buries nothing.
            assert (await stage.store.counts("lines")).stuck == 1
        held = await lease(stage, 10, queue="lines")
        assert sorted(bodies(held)) == [b"a2", b"b1"]
        await stage.store.ack("lines", held.receipts())
    assert (await stage.store.counts("lines.dead")).ready[Tier.NORMAL] == 2


@every_store
async def test_a_group_waits_behind_a_spent_message_that_has_no_room_among_the_dead(stage: Stage) -> None:
    await stage.store.create("full", QueueSettings(size_max=1))
    await send(stage, b"alive", queue="full")
    await stage.store.create("lines", QueueSettings(is_fifo=True, deliveries_max=1, dead_letters="full"))
    await stage.store.send("lines", Drafts(bodies=[b"a1", b"a2", b"b1"], groups=[b"a", b"a", b"b"]))
    await lease(stage, 1, queue="lines", lease_ms=1_000)
    await stage.advance(1_000)
    assert bodies(await lease(stage, 10, queue="lines")) == [b"b1"]
    assert await is_empty_handed(stage, queue="lines")
    assert await stage.store.purge("full") == 1
    await stage.advance(1_000)
    assert bodies(await lease(stage, 10, queue="lines")) == [b"a2"]
