"""What every store promises about leases: who holds a message, until when, and what becomes of it."""

import pytest

from penstock.contract.limits import (
    DURATION_MS_MAX,
    ERROR_CHARACTERS_MAX,
    LEASE_BYTES_MAX,
    LEASE_MESSAGES_MAX,
    LEASE_MS_MAX,
)
from penstock.contract.messages import Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts, Receipt
from penstock.store.interface import Release
from tests.conformance.stores import (
    DONE,
    STALE,
    Stage,
    bodies,
    drain,
    every_store,
    is_empty_handed,
    lease,
    send,
    until,
)


@every_store
async def test_an_empty_queue_answers_at_once_with_nothing(stage: Stage) -> None:
    assert await stage.store.lease("orders", want=10) is None


@every_store
async def test_a_leased_message_is_hidden_from_others(stage: Stage) -> None:
    await send(stage, b"a", b"b")
    assert bodies(await lease(stage, 1)) == [b"a"]
    assert bodies(await lease(stage, 10)) == [b"b"]
    assert await is_empty_handed(stage)


@every_store
async def test_a_lease_of_large_messages_stops_before_it_is_too_large_to_answer(stage: Stage) -> None:
    large = bytes(900_000)
    for _ in range(5):
        await send(stage, *[large] * 6)

    first = await lease(stage, 1_000)
    assert 15 * 900_000 < sum(map(len, first.bodies)) <= LEASE_BYTES_MAX
    assert len(first) + len(await lease(stage, 1_000)) == 30


@every_store
async def test_a_delivery_says_what_the_worker_needs_to_know(stage: Stage) -> None:
    before_ms = stage.now_ms()
    await stage.store.send("orders", Drafts(bodies=[b"a"], tiers=bytes([Tier.HIGH]), groups=[b"g"]))
    sent_ms = stage.now_ms()
    await stage.advance(1_000)
    leased_ms = stage.now_ms()
    delivery = await lease(stage, lease_ms=5_000)
    assert len(delivery) == 1
    assert delivery.tiers == bytes([Tier.HIGH])
    assert list(delivery.deliveries) == [1]
    assert before_ms <= delivery.sent_at_ms[0] <= sent_ms
    assert list(delivery.groups or ()) == [b"g"]
    assert leased_ms + 5_000 <= delivery.until_ms <= stage.now_ms() + 5_000


@every_store
async def test_a_lease_lasts_for_the_queues_own_time_unless_told_otherwise(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(lease_ms=7_000))
    await send(stage, b"a", b"b")
    now_ms = stage.now_ms()
    assert now_ms + 7_000 <= (await lease(stage, 1)).until_ms <= stage.now_ms() + 7_000
    now_ms = stage.now_ms()
    assert now_ms + 1_000 <= (await lease(stage, 1, lease_ms=1_000)).until_ms <= stage.now_ms() + 1_000


@every_store
async def test_an_acked_message_is_settled_for_good(stage: Stage) -> None:
    await send(stage, b"a")
    held = await lease(stage)
    assert await stage.store.ack("orders", held.receipts()) == [DONE]
    await stage.advance(LEASE_MS_MAX)
    assert await is_empty_handed(stage)
    assert (await stage.store.counts("orders")).live == 0


@every_store
async def test_acking_twice_is_acking_once(stage: Stage) -> None:
    await send(stage, b"a", b"b")
    held = await lease(stage)
    assert await stage.store.ack("orders", held.receipts()[:1]) == [DONE]
    assert await stage.store.ack("orders", held.receipts()) == [STALE, DONE]
    assert await stage.store.ack("orders", held.receipts()) == [STALE, STALE]
    assert (await stage.store.counts("orders")).live == 0


@every_store
async def test_a_receipt_may_outlive_its_lease_until_the_message_is_leased_again(stage: Stage) -> None:
    await send(stage, b"a", b"b")
    lapsed = await lease(stage, lease_ms=1_000)
    await stage.advance(1_000)
    assert await stage.store.ack("orders", lapsed.receipts()) == [STALE, STALE]
    assert await stage.store.ack("orders", lapsed.receipts()[:1], outlives=True) == [DONE]
    held = await lease(stage)
    assert bodies(held) == [b"b"]
    assert await stage.store.ack("orders", lapsed.receipts(), outlives=True) == [STALE, STALE]
    assert await stage.store.ack("orders", held.receipts(), outlives=True) == [DONE]


@every_store
async def test_a_receipt_of_a_fifo_queue_does_not_outlive_its_lease(stage: Stage) -> None:
    await stage.store.create("line", QueueSettings(is_fifo=True))
    await stage.store.send("line", Drafts(bodies=[b"a"], groups=[b"g"]))
    lapsed = await lease(stage, queue="line", lease_ms=1_000)
    await stage.advance(1_000)
    assert await stage.store.ack("line", lapsed.receipts(), outlives=True) == [STALE]


@every_store
async def test_an_empty_batch_of_receipts_changes_nothing(stage: Stage) -> None:
    assert await stage.store.ack("orders", []) == []
    assert await stage.store.release("orders", []) == []
    assert await stage.store.extend("orders", [], lease_ms=1_000) == []


@every_store
async def test_receipts_of_several_leases_are_answered_in_their_order(stage: Stage) -> None:
    await send(stage, b"a", b"b", b"c", b"d")
    first, second = await lease(stage, 2), await lease(stage, 2)
    settled = [first.receipts()[1], second.receipts()[0]]
    assert await stage.store.ack("orders", settled) == [DONE, DONE]
    mixed = [second.receipts()[1], first.receipts()[1], first.receipts()[0], second.receipts()[0]]
    assert await stage.store.ack("orders", mixed) == [DONE, STALE, DONE, STALE]


@every_store
async def test_thousands_of_leases_may_be_acked_in_one_batch(stage: Stage) -> None:
    await send(stage, *[b"x"] * 5_000)
    receipts = [receipt for _ in range(5_000) for receipt in (await lease(stage, 1, lease_ms=LEASE_MS_MAX)).receipts()]
    assert await stage.store.ack("orders", receipts) == [DONE] * 5_000


@every_store
async def test_a_forged_receipt_is_stale(stage: Stage) -> None:
    await send(stage, b"a", b"b")
    number, token, _ = (await lease(stage)).receipts()[0]
    forged = [
        Receipt(number, token ^ 1, 0),
        Receipt(number, 0, 0),
        Receipt(number + 1, token, 0),
        Receipt(number + 2**32, token, 0),
        Receipt(-1, token, 0),
        Receipt(number, token, 2),
        Receipt(number, token, -1),
        Receipt(number, token, 10**12),
    ]
    for verb in (
        stage.store.ack("orders", forged),
        stage.store.release("orders", forged, Release(delay_ms=0)),
        stage.store.extend("orders", forged, lease_ms=1_000),
    ):
        assert await verb == [STALE] * len(forged)
    assert await stage.store.ack("orders", [Receipt(number, token, row) for row in range(2)]) == [DONE, DONE]


@every_store
async def test_a_receipt_is_worth_nothing_at_another_queue(stage: Stage) -> None:
    await stage.store.create("mail", QueueSettings())
    await send(stage, b"a")
    await send(stage, b"a", queue="mail")
    mine, theirs = await lease(stage), await lease(stage, queue="mail")
    assert await stage.store.ack("orders", theirs.receipts()) == [STALE]
    assert await stage.store.ack("mail", theirs.receipts()) == [DONE]
    assert await stage.store.ack("orders", mine.receipts()) == [DONE]


@every_store
async def test_a_lapsed_lease_returns_at_once_with_the_delivery_counted(stage: Stage) -> None:
    await send(stage, b"a", b"b")
    first = await lease(stage, lease_ms=1_000)
    await until(stage, first.until_ms - 1)
    assert await is_empty_handed(stage)
    await until(stage, first.until_ms)
    again = await lease(stage)
    assert bodies(again) == [b"a", b"b"]
    assert list(again.deliveries) == [2, 2]
    assert list(again.ids) == list(first.ids)


@every_store
async def test_a_worker_that_lost_its_lease_cannot_ack(stage: Stage) -> None:
    await send(stage, b"a")
    slow = await lease(stage, lease_ms=1_000)
    await stage.advance(1_000)
    other = await lease(stage, lease_ms=1_000)
    for verb in (
        stage.store.ack("orders", slow.receipts()),
        stage.store.release("orders", slow.receipts(), Release(delay_ms=0)),
        stage.store.extend("orders", slow.receipts(), lease_ms=1_000),
    ):
        assert await verb == [STALE]
    assert await stage.store.ack("orders", other.receipts()) == [DONE]


@every_store
async def test_a_worker_whose_lease_lapsed_cannot_ack_even_before_another_comes(stage: Stage) -> None:
    await send(stage, b"a")
    slow = await lease(stage, lease_ms=1_000)
    await stage.advance(1_000)
    assert await stage.store.ack("orders", slow.receipts()) == [STALE]
    assert await drain(stage) == [b"a"]


@every_store
async def test_only_what_was_not_acked_comes_back(stage: Stage) -> None:
    await send(stage, *[b"%d" % number for number in range(10)])
    held = await lease(stage, lease_ms=1_000)
    await stage.store.ack("orders", held.receipts()[::2])
    await stage.advance(1_000)
    assert bodies(await lease(stage)) == [b"1", b"3", b"5", b"7", b"9"]


@every_store
async def test_a_heartbeat_keeps_a_lease(stage: Stage) -> None:
    await send(stage, b"a")
    held = await lease(stage, lease_ms=1_000)
    for _ in range(5):
        await stage.advance(800)
        assert await stage.store.extend("orders", held.receipts(), lease_ms=1_000) == [DONE]
        assert await is_empty_handed(stage)
    assert await stage.store.ack("orders", held.receipts()) == [DONE]


@every_store
async def test_an_extended_lease_still_ends(stage: Stage) -> None:
    await send(stage, b"a")
    held = await lease(stage, lease_ms=1_000)
    await stage.store.extend("orders", held.receipts(), lease_ms=5_000)
    await stage.advance(4_900)
    assert await is_empty_handed(stage)
    await stage.advance(100)
    assert list((await lease(stage)).deliveries) == [2]


@every_store
async def test_extending_counts_from_now_and_may_shorten(stage: Stage) -> None:
    await send(stage, b"a")
    held = await lease(stage, lease_ms=60_000)
    assert await stage.store.extend("orders", held.receipts(), lease_ms=1_000) == [DONE]
    await stage.advance(1_000)
    assert bodies(await lease(stage)) == [b"a"]


@every_store
async def test_some_messages_of_a_lease_may_be_extended_and_others_not(stage: Stage) -> None:
    await send(stage, b"a", b"b", b"c")
    held = await lease(stage, lease_ms=1_000)
    assert await stage.store.extend("orders", held.receipts()[1:2], lease_ms=10_000) == [DONE]
    await stage.advance(1_000)
    assert bodies(await lease(stage)) == [b"a", b"c"]
    assert await stage.store.ack("orders", held.receipts()) == [STALE, DONE, STALE]


@every_store
async def test_extending_does_not_revive_a_lapsed_lease(stage: Stage) -> None:
    await send(stage, b"a")
    held = await lease(stage, lease_ms=1_000)
    await stage.advance(1_000)
    assert await stage.store.extend("orders", held.receipts(), lease_ms=1_000) == [STALE]
    assert bodies(await lease(stage)) == [b"a"]


@every_store
async def test_a_receipt_that_outlives_its_lease_holds_the_message_again(stage: Stage) -> None:
    await send(stage, b"a", b"b", b"c")
    held = await lease(stage, lease_ms=1_000)
    await stage.advance(1_000)
    first, second, third = held.receipts()
    assert bodies(other := await lease(stage, 1)) == [b"a"]
    assert await stage.store.extend("orders", [first, second], lease_ms=5_000, outlives=True) == [STALE, DONE]
    assert bodies(await lease(stage, 1)) == [b"c"]
    assert await stage.store.extend("orders", [third], lease_ms=5_000, outlives=True) == [STALE]
    await stage.advance(4_000)
    assert await stage.store.extend("orders", [second], lease_ms=5_000) == [DONE], "it is held as before"
    await stage.advance(4_000)
    assert await is_empty_handed(stage)
    assert await stage.store.ack("orders", [second]) == [DONE]
    assert await stage.store.ack("orders", other.receipts()) == [DONE]


@every_store
async def test_a_message_that_is_held_again_lapses_with_its_deliveries_as_they_were(stage: Stage) -> None:
    await send(stage, b"a", b"b")
    held = await lease(stage, lease_ms=1_000)
    for _ in range(3):
        await stage.advance(1_000)
        assert await stage.store.extend("orders", held.receipts(), lease_ms=1_000, outlives=True) == [DONE, DONE]
        assert await is_empty_handed(stage)
    assert (await stage.store.counts("orders")).leased == 2
    await stage.advance(1_000)
    again = await lease(stage)
    assert (bodies(again), list(again.deliveries)) == ([b"a", b"b"], [2, 2])


@every_store
async def test_a_message_that_is_to_be_buried_is_not_held_again(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=1))
    await send(stage, b"a")
    held = await lease(stage, lease_ms=1_000)
    await stage.advance(1_000)
    assert await stage.store.extend("orders", held.receipts(), lease_ms=1_000, outlives=True) == [STALE]


@every_store
async def test_receipts_that_outlive_their_leases_are_found_by_the_messages(stage: Stage) -> None:
    ids = await stage.store.send("orders", Drafts(bodies=[b"a", b"b", b"c"], groups=[b"", b"g", b""]))
    held = await lease(stage, 2, lease_ms=1_000)
    by_id = dict(zip(held.ids, held.receipts(), strict=True))
    assert await stage.store.receipts("orders", ids) == [by_id.get(each) for each in ids]
    await stage.advance(1_000)
    assert await stage.store.receipts("orders", ids) == [None] * 3
    assert await stage.store.receipts("orders", ids, outlives=True) == [by_id.get(each) for each in ids]


@every_store
async def test_a_released_message_rests_for_the_delay_it_was_given(stage: Stage) -> None:
    await send(stage, b"a")
    held = await lease(stage)
    now_ms = stage.now_ms()
    assert await stage.store.release("orders", held.receipts(), Release(delay_ms=5_000)) == [DONE]
    assert await stage.store.ack("orders", held.receipts()) == [STALE]
    await until(stage, now_ms + 4_999)
    assert await is_empty_handed(stage)
    await stage.advance(10)
    assert list((await lease(stage)).deliveries) == [2]


@every_store
async def test_a_message_released_without_delay_is_visible_at_once(stage: Stage) -> None:
    await send(stage, b"a", b"b")
    held = await lease(stage)
    assert await stage.store.release("orders", held.receipts()[:1], Release(delay_ms=0)) == [DONE]
    assert bodies(await lease(stage)) == [b"a"]
    assert await stage.store.ack("orders", held.receipts()) == [STALE, DONE]


@every_store
async def test_failed_messages_back_off_and_do_not_return_as_a_herd(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(backoff_ms_base=10_000, backoff_ms_max=15_000, deliveries_max=0))
    await send(stage, *[b"x"] * 100)
    for ceiling_ms in (10_000, 15_000, 15_000):
        held = await lease(stage, 100)
        assert len(held) == 100
        assert await stage.store.release("orders", held.receipts(), Release(error="Timeout: größer")) == [DONE] * 100
        await stage.advance(ceiling_ms // 2)
        counts = await stage.store.counts("orders")
        assert 20 <= counts.delayed <= 80
        assert counts.live == 100
        await stage.advance(ceiling_ms // 2)
        assert (await stage.store.counts("orders")).delayed == 0


@every_store
async def test_messages_of_many_leases_released_together_do_not_return_as_a_herd(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(backoff_ms_base=10_000))
    await send(stage, *[b"x"] * 100)
    receipts = [receipt for _ in range(100) for receipt in (await lease(stage, 1)).receipts()]
    await stage.store.release("orders", receipts)
    await stage.advance(5_000)
    assert 20 <= (await stage.store.counts("orders")).delayed <= 80


@every_store
async def test_a_released_message_keeps_its_tier(stage: Stage) -> None:
    tiers = bytes([Tier.CRITICAL, Tier.LOW])
    await stage.store.send("orders", Drafts(bodies=[b"a", b"b"], tiers=tiers))
    await stage.store.release("orders", (await lease(stage)).receipts(), Release(delay_ms=0))
    again = await lease(stage)
    assert (bodies(again), again.tiers) == ([b"a", b"b"], tiers)


@every_store
async def test_a_long_error_is_shortened_and_not_refused(stage: Stage) -> None:
    await send(stage, *[b"x"] * 300)
    receipts = [receipt for _ in range(300) for receipt in (await lease(stage, 1)).receipts()]
    error = "\N{PILE OF POO}" * (2 * ERROR_CHARACTERS_MAX)
    assert await stage.store.release("orders", receipts, Release(delay_ms=0, error=error)) == [DONE] * 300
    await stage.reopen()
    assert len(await drain(stage)) == 300


@every_store
async def test_an_error_may_hold_any_characters(stage: Stage) -> None:
    """Names of files that are not UTF-8 get into Python's exceptions as lone surrogates."""
    await send(stage, b"a")
    error = "no file 'caf\udce9', \x00\n\N{SNOWMAN}"
    assert await stage.store.release("orders", (await lease(stage)).receipts(), Release(delay_ms=0, error=error)) == [
        DONE
    ]
    await stage.crash()
    assert await drain(stage) == [b"a"]


@every_store
async def test_the_limits_of_a_lease_are_named(stage: Stage) -> None:
    await send(stage, b"a")
    store = stage.store
    for want in (0, -1, LEASE_MESSAGES_MAX + 1):
        with pytest.raises(ValueError, match="LEASE_MESSAGES_MAX"):
            await store.lease("orders", want=want)
    for lease_ms in (0, -1, LEASE_MS_MAX + 1):
        with pytest.raises(ValueError, match="LEASE_MS_MAX"):
            await store.lease("orders", want=1, lease_ms=lease_ms)
    held = await lease(stage)
    for lease_ms in (0, -1, LEASE_MS_MAX + 1):
        with pytest.raises(ValueError, match="LEASE_MS_MAX"):
            await store.extend("orders", held.receipts(), lease_ms=lease_ms)
    for delay_ms in (-1, DURATION_MS_MAX + 1):
        with pytest.raises(ValueError, match="DURATION_MS_MAX"):
            await store.release("orders", held.receipts(), Release(delay_ms=delay_ms))
    assert await store.ack("orders", held.receipts()) == [DONE]


@every_store
async def test_a_delivery_says_when_a_message_was_first_leased_if_that_was_before(stage: Stage) -> None:
    await stage.store.send("orders", Drafts(bodies=[b"plain"]))
    await stage.store.send("orders", Drafts(bodies=[b"grouped"], groups=[b"g"]))
    first_ms = stage.now_ms()
    assert (await lease(stage, 2, lease_ms=1_000)).first_leased_at_ms is None
    await stage.advance(2_000)
    again = await lease(stage, 2)
    assert sorted(bodies(again)) == [b"grouped", b"plain"]
    assert again.first_leased_at_ms is not None
    assert all(first_ms <= each < first_ms + 1_000 for each in again.first_leased_at_ms)
