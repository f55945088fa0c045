"""What every store promises to those who page through a queue: each message once, and only what they look for."""

from typing import Any

import pytest

from penstock.contract.limits import MIB, PEEK_BYTES_MAX
from penstock.contract.messages import Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.interface import Message, MessageFilter, Release
from tests.conformance.stores import Stage, every_store, lease, send


async def pages(stage: Stage, most: int, queue: str = "orders", **sought: Any) -> list[Message]:
    """Return all messages, page by page."""
    page = await stage.store.peek(queue, MessageFilter(**sought), most=most)
    found = page.messages
    while page.next:
        assert len(page.messages) <= most
        page = await stage.store.peek(queue, MessageFilter(**sought), most=most, after=page.next)
        found += page.messages
    return found


def names(messages: list[Message]) -> list[bytes]:
    return [bytes(message.body) for message in messages]


async def furnish(stage: Stage) -> None:
    """Have messages in every place, of several tiers and groups, as runs and as rows."""
    await stage.store.create("graves", QueueSettings(size_max=1, reserve_percent=(0,) * 5))
    await stage.store.create("work", QueueSettings(dead_letters="graves", deliveries_max=2))
    await stage.store.send("graves", Drafts(bodies=[b"full"]))
    await stage.store.send("work", Drafts(bodies=[b"spent"], deliveries_max=[1]))
    await stage.store.release("work", (await lease(stage, queue="work")).receipts(), Release(error="boom"))
    await send(stage, *[b"leased %d" % number for number in range(5)], queue="work")
    await lease(stage, 5, queue="work", lease_ms=600_000)
    await stage.store.send("work", Drafts(bodies=[b"held"], groups=[b"g"]))
    await lease(stage, 1, queue="work", lease_ms=600_000)
    await stage.store.send("work", Drafts(bodies=[b"resting"], visible_at_ms=[stage.now_ms() + 600_000]))
    await send(stage, *[b"plain %d" % number for number in range(5)], queue="work")
    tiers, groups = bytes([4, 0, 2, 2]), [b"g", b"g", b"h", b"g"]
    await stage.store.send("work", Drafts(bodies=[b"low", b"top", b"h", b"g"], tiers=tiers, groups=groups))


@every_store
async def test_pages_show_every_message_once_with_the_most_urgent_that_wait_first(stage: Stage) -> None:
    await furnish(stage)
    whole = await stage.store.peek("work", most=100)
    assert whole.next == ""
    assert names(whole.messages)[0] == b"top"
    places = [message.place for message in whole.messages]
    assert places[:9] == ["waiting"] * 9
    assert sorted(places[9:]) == ["leased"] * 6 + ["resting", "spent"]
    tiers = [message.tier for message in whole.messages[:9]]
    assert tiers == sorted(tiers)
    for most in (1, 2, 3, 7):
        assert await pages(stage, most, "work") == whole.messages


@every_store
async def test_a_peek_keeps_to_a_place_a_tier_or_a_group(stage: Stage) -> None:
    await furnish(stage)
    for most in (1, 100):
        assert names(await pages(stage, most, "work", place="spent")) == [b"spent"]
        assert names(await pages(stage, most, "work", place="resting")) == [b"resting"]
        assert len(await pages(stage, most, "work", place="leased")) == 6
        assert len(await pages(stage, most, "work", place="waiting")) == 9
        assert await pages(stage, most, "work", place="moving") == []
        assert names(await pages(stage, most, "work", tier=Tier.BACKGROUND)) == [b"low"]
        assert sorted(names(await pages(stage, most, "work", group=b"g"))) == [b"g", b"held", b"low", b"top"]
        assert await pages(stage, most, "work", group=b"nobody") == []
        assert len(await pages(stage, most, "work", group=b"")) == 12
        assert names(await pages(stage, most, "work", group=b"g", tier=2, place="leased")) == [b"held"]


@every_store
async def test_a_peek_finds_a_text_in_bodies(stage: Stage) -> None:
    await furnish(stage)
    assert sorted(names(await pages(stage, 1, "work", text=b" 3"))) == [b"leased 3", b"plain 3"]
    assert names(await pages(stage, 9, "work", text=b"lai", place="waiting"))[0] == b"plain 0"
    assert await pages(stage, 9, "work", text=b"no such text") == []


@every_store
async def test_a_search_of_a_long_queue_takes_several_pages_that_may_be_empty(stage: Stage) -> None:
    await send(stage, *[b"hay"] * 2_500, b"needle")
    page = await stage.store.peek("orders", MessageFilter(text=b"needle"), most=10)
    assert (page.messages, bool(page.next)) == ([], True)
    assert names(await pages(stage, 10, text=b"needle")) == [b"needle"]


@every_store
async def test_a_peek_finds_dead_letters_by_their_last_error_and_their_first_queue(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=1, backoff_ms_base=0))
    (buried,) = await send(stage, b"poison")
    await stage.store.release("orders", (await lease(stage)).receipts(), Release(error="a boom"))
    await stage.store.tidy()
    await stage.store.send("orders.dead", Drafts(bodies=[b"its own"]))
    origin = (await stage.store.describe("orders")).id
    for sought in ({"error": "boom"}, {"origin": "orders"}, {"origin": origin}):
        assert [each.id for each in await pages(stage, 1, "orders.dead", **sought)] == [buried]
    assert await pages(stage, 1, "orders.dead", error="bang") == []
    assert await pages(stage, 1, "orders.dead", origin="elsewhere") == []


@every_store
async def test_a_page_of_large_bodies_is_cut_short(stage: Stage) -> None:
    for _ in range(2):
        await send(stage, *[bytes(MIB)] * 10)
    page = await stage.store.peek("orders", most=100)
    assert sum(len(message.body) for message in page.messages) == PEEK_BYTES_MAX
    assert len((await stage.store.peek("orders", most=100, after=page.next)).messages) == 4


@every_store
async def test_a_page_goes_on_behind_messages_that_have_gone(stage: Stage) -> None:
    await send(stage, *[b"%d" % number for number in range(10)])
    for number in range(10):
        await stage.store.send("orders", Drafts(bodies=[b"g%d" % number], groups=[b"g"]))
        await stage.advance(1)
    first = await stage.store.peek("orders", MessageFilter(group=b"g"), most=4)
    assert names(first.messages) == [b"g0", b"g1", b"g2", b"g3"]
    plain = await stage.store.peek("orders", MessageFilter(group=b""), most=4)
    delivery = await lease(stage, 12)
    await stage.store.ack("orders", delivery.receipts())
    left = await stage.store.peek("orders", MessageFilter(group=b"g"), most=100, after=first.next)
    assert names(left.messages) == [b"g6", b"g7", b"g8", b"g9"]
    left = await stage.store.peek("orders", MessageFilter(group=b""), most=100, after=plain.next)
    assert names(left.messages) == [b"6", b"7", b"8", b"9"]


@every_store
async def test_what_is_no_cursor_no_place_and_no_tier_is_refused(stage: Stage) -> None:
    wrong = "x", "1", "1-", "0-0-0", "0-0-7-1", "3-1", "1-2-3-4", "1-2\n", "1-" + "f" * 17, "-1-2", "1-F"
    for after in wrong:
        with pytest.raises(ValueError, match="is not where a page ended"):
            await stage.store.peek("orders", most=1, after=after)
    with pytest.raises(ValueError, match="waiting, resting, leased, spent, moving"):
        await stage.store.peek("orders", MessageFilter(place="free"), most=1)
    with pytest.raises(ValueError, match="from 0 to 4"):
        await stage.store.peek("orders", MessageFilter(tier=5), most=1)
