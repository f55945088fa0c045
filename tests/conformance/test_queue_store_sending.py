"""What every store promises about sending: ids, bodies, delays, repeats, limits."""

import hashlib
from typing import Any

import pytest

from penstock.contract.limits import (
    BATCH_BYTES_MAX,
    DELIVERIES_MAX,
    DURATION_MS_MAX,
    MIB,
    NAME_BYTES_MAX,
    SENDER_SENDS_MAX,
)
from penstock.contract.messages import Tier
from penstock.contract.queue_settings import DAY_MS, DedupScope, QueueSettings
from penstock.core.queue.deduplication import BadSender, SenderFenced, SendForgotten
from penstock.core.queue.message import BadDraft, BodyTooLarge, Drafts, Sender
from penstock.store.interface import Release
from tests.conformance.stores import DONE, Stage, bodies, drain, every_store, is_empty_handed, lease, send, until

NORMAL = Tier.NORMAL


@every_store
async def test_by_default_an_id_is_free_again_once_its_message_is_settled(stage: Stage) -> None:
    first = await stage.store.send("orders", Drafts(bodies=[b"a"], dedup_ids=[b"id"]))
    assert await stage.store.send("orders", Drafts(bodies=[b"b"], dedup_ids=[b"id"])) == first
    held = await lease(stage, 1)
    await stage.store.ack("orders", held.receipts())
    assert await stage.store.send("orders", Drafts(bodies=[b"c"], dedup_ids=[b"id"])) != first


@every_store
async def test_by_default_a_message_is_kept_until_it_is_settled(stage: Stage) -> None:
    await send(stage, b"old")
    await stage.advance(5 * DAY_MS)
    await stage.store.tidy()
    assert await drain(stage) == [b"old"]


@every_store
async def test_every_message_gets_an_id_of_its_own_in_the_order_of_the_drafts(stage: Stage) -> None:
    ids = await send(stage, b"a", b"b", b"c")
    ids += await send(stage, b"d")
    assert len(set(ids)) == 4
    delivery = await lease(stage)
    assert dict(zip(bodies(delivery), delivery.ids, strict=True)) == dict(
        zip([b"a", b"b", b"c", b"d"], ids, strict=True)
    )


@every_store
async def test_a_message_keeps_its_id_from_delivery_to_delivery(stage: Stage) -> None:
    ids = await send(stage, b"a")
    first = await lease(stage)
    await stage.store.release("orders", first.receipts(), Release(delay_ms=0))
    again = await lease(stage)
    assert list(first.ids) == list(again.ids) == ids


@every_store
async def test_an_empty_batch_sends_nothing(stage: Stage) -> None:
    assert await stage.store.send("orders", Drafts(bodies=[])) == []
    assert (await stage.store.counts("orders")).live == 0


@every_store
async def test_a_body_is_any_bytes(stage: Stage) -> None:
    sent = [b"", bytes(range(256)), b"\x00" * 9, "größer".encode(), b"x" * MIB]
    await stage.store.send("orders", Drafts(bodies=[memoryview(body) for body in sent]))
    assert bodies(await lease(stage)) == sent
    await stage.crash()
    await stage.advance(30_000)
    assert bodies(await lease(stage)) == sent


@every_store
async def test_attributes_come_back_with_their_message(stage: Stage) -> None:
    await stage.store.send("orders", Drafts(bodies=[b"a", b"b"], attributes=[b'{"k":1}', b""]))
    await send(stage, b"plain")
    delivery = await lease(stage)
    assert delivery.attributes is not None
    assert [bytes(part) for part in delivery.attributes] == [b'{"k":1}', b"", b""]


@every_store
async def test_each_message_of_a_mixed_batch_has_its_own_body_and_tier(stage: Stage) -> None:
    tiers = bytes(number * 7 % 5 for number in range(200))
    sent = [b"%d of tier %d" % (number, tier) for number, tier in enumerate(tiers)]
    ids = await stage.store.send("orders", Drafts(bodies=sent, tiers=tiers, attributes=[body[:3] for body in sent]))
    expected = dict(zip(ids, sent, strict=True))
    for _ in range(2):
        delivery = await lease(stage, 200)
        assert dict(zip(delivery.ids, bodies(delivery), strict=True)) == expected
        assert delivery.attributes is not None
        for body, attributes, tier in zip(bodies(delivery), delivery.attributes, delivery.tiers, strict=True):
            assert body.endswith(b" of tier %d" % tier)
            assert attributes == body[:3]
        # Once more, read back from the disk.
        await stage.crash()
        await stage.advance(30_000)


@every_store
async def test_a_thousand_messages_are_one_batch(stage: Stage) -> None:
    sent = [b"%d" % number for number in range(1_000)]
    ids = await send(stage, *sent)
    assert len(set(ids)) == 1_000
    delivery = await lease(stage, 1_000)
    assert bodies(delivery) == sent
    assert await stage.store.ack("orders", delivery.receipts()) == [DONE] * 1_000
    assert (await stage.store.counts("orders")).live == 0


@every_store
async def test_a_scheduled_message_is_visible_from_its_millisecond_on(stage: Stage) -> None:
    at_ms = stage.now_ms() + 60_000
    await stage.store.send("orders", Drafts(bodies=[b"a"], visible_at_ms=[at_ms]))
    await until(stage, at_ms - 1)
    assert await is_empty_handed(stage)
    await until(stage, at_ms)
    assert bodies(await lease(stage)) == [b"a"]


@every_store
async def test_scheduled_messages_come_in_the_order_of_their_times(stage: Stage) -> None:
    now_ms = stage.now_ms()
    times = [now_ms + 3_000, now_ms + 1_000, 0, now_ms + 2_000, now_ms - 5]
    await stage.store.send("orders", Drafts(bodies=[b"3", b"1", b"0", b"2", b"past"], visible_at_ms=times))
    assert sorted(await drain(stage)) == [b"0", b"past"]
    for body in (b"1", b"2", b"3"):
        await stage.advance(1_000)
        assert await drain(stage) == [body]


@every_store
async def test_a_queue_may_delay_every_message(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(delay_ms=10_000))
    await send(stage, b"delayed")
    await stage.store.send("orders", Drafts(bodies=[b"own time"], visible_at_ms=[stage.now_ms() + 1_000]))
    await stage.advance(1_000)
    assert await drain(stage) == [b"own time"]
    await stage.advance(9_000)
    assert await drain(stage) == [b"delayed"]


@every_store
async def test_within_its_window_an_id_is_sent_once_settled_or_not(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(dedup_scope=DedupScope.WINDOW, dedup_window_ms=60_000))
    until_ms = stage.now_ms() + 60_000
    first = await stage.store.send("orders", Drafts(bodies=[b"a"], dedup_ids=[b"1"]))
    assert await stage.store.send("orders", Drafts(bodies=[b"again"], dedup_ids=[b"1"])) == first
    assert await drain(stage) == [b"a"]
    await until(stage, until_ms - 1)
    assert await stage.store.send("orders", Drafts(bodies=[b"again"], dedup_ids=[b"1"])) == first
    assert await is_empty_handed(stage)
    await stage.advance(1_000)
    assert await stage.store.send("orders", Drafts(bodies=[b"anew"], dedup_ids=[b"1"])) != first
    assert await drain(stage) == [b"anew"]


@every_store
async def test_a_live_id_is_free_again_when_its_message_is_settled(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(dedup_scope=DedupScope.LIVE, retention_ms=0))
    first = await stage.store.send("orders", Drafts(bodies=[b"a"], dedup_ids=[b"1"]))
    await stage.advance(10 * DAY_MS)
    held = await lease(stage)
    assert await stage.store.send("orders", Drafts(bodies=[b"again"], dedup_ids=[b"1"])) == first
    await stage.store.ack("orders", held.receipts())
    assert await stage.store.send("orders", Drafts(bodies=[b"anew"], dedup_ids=[b"1"])) != first
    assert await drain(stage) == [b"anew"]


@every_store
async def test_purging_frees_live_ids(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(dedup_scope=DedupScope.LIVE))
    await stage.store.send("orders", Drafts(bodies=[b"a"], dedup_ids=[b"1"]))
    await stage.store.purge("orders")
    await stage.store.send("orders", Drafts(bodies=[b"anew"], dedup_ids=[b"1"]))
    assert await drain(stage) == [b"anew"]


@every_store
async def test_equal_bodies_are_one_message_by_their_digest(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(dedup_scope=DedupScope.CONTENT))
    sent = [b"a", b"b", b"a"]
    ids = await stage.store.send(
        "orders", Drafts(bodies=sent, dedup_ids=[hashlib.sha256(body).digest() for body in sent])
    )
    assert ids[0] == ids[2] != ids[1]
    assert await drain(stage) == [b"a", b"b"]


@every_store
async def test_a_batch_may_repeat_itself_and_others(stage: Stage) -> None:
    for scope in (DedupScope.WINDOW, DedupScope.LIVE):
        name = scope.value.encode()
        await stage.store.change("orders", QueueSettings(dedup_scope=scope))
        (known,) = await stage.store.send("orders", Drafts(bodies=[b"known"], dedup_ids=[name]))
        ids = await stage.store.send(
            "orders",
            Drafts(
                bodies=[b"new", b"repeats", b"known again", b"plain", b"late"],
                tiers=bytes([NORMAL, Tier.HIGH, NORMAL, NORMAL, Tier.LOW]),
                dedup_ids=[name + b"2", name + b"2", name, b"", name + b"3"],
                attributes=[b"n", b"r", b"k", b"p", b"l"],
            ),
        )
        assert ids[1] == ids[0]
        assert ids[2] == known
        assert len({known, *ids}) == 4
        delivery = await lease(stage)
        assert delivery.attributes is not None
        attributes = [bytes(part) for part in delivery.attributes]
        assert dict(zip(bodies(delivery), attributes, strict=True)) == {
            b"known": b"", b"new": b"n", b"plain": b"p", b"late": b"l"
        }  # fmt: skip
        await stage.store.ack("orders", delivery.receipts())


@every_store
async def test_ids_belong_to_their_queue(stage: Stage) -> None:
    await stage.store.create("mail", QueueSettings())
    first = await stage.store.send("orders", Drafts(bodies=[b"a"], dedup_ids=[b"1"]))
    assert await stage.store.send("mail", Drafts(bodies=[b"a"], dedup_ids=[b"1"])) != first


@every_store
async def test_a_sender_that_repeats_itself_adds_nothing(stage: Stage) -> None:
    drafts = Drafts(bodies=[b"a", b"b"], tiers=bytes([NORMAL, Tier.HIGH]))
    ids = await stage.store.send("orders", drafts, sender=Sender(7, 0, 1))
    assert await stage.store.send("orders", drafts, sender=Sender(7, 0, 1)) == ids
    assert sorted(await drain(stage)) == [b"a", b"b"]
    assert await stage.store.send("orders", drafts, sender=Sender(7, 0, 1)) == ids
    assert await is_empty_handed(stage)
    for other in (Sender(7, 0, 2), Sender(8, 0, 1)):
        assert not set(await stage.store.send("orders", drafts, sender=other)) & set(ids)


@every_store
async def test_a_sender_is_told_again_which_of_its_drafts_were_repeats(stage: Stage) -> None:
    await stage.store.send("orders", Drafts(bodies=[b"known"], dedup_ids=[b"1"]))
    drafts = Drafts(bodies=[b"x", b"new", b"y"], dedup_ids=[b"1", b"2", b"2"])
    ids = await stage.store.send("orders", drafts, sender=Sender(7, 0, 1))
    repeats = await stage.store.send("orders", Drafts(bodies=[b"z"], dedup_ids=[b"2"]), sender=Sender(7, 0, 2))
    assert repeats == [ids[1]]
    await stage.crash()
    assert await stage.store.send("orders", drafts, sender=Sender(7, 0, 1)) == ids
    assert await stage.store.send("orders", drafts, sender=Sender(7, 0, 2)) == repeats
    assert await drain(stage) == [b"known", b"new"]


@every_store
async def test_a_sender_out_of_bounds_is_refused_before_anything_happens(stage: Stage) -> None:
    greatest = Sender(2**64 - 1, 2**32 - 1, 2**64 - 1)
    ids = await stage.store.send("orders", Drafts(bodies=[b"a"]), sender=greatest)
    for sender, name in (
        (Sender(2**64, 0, 0), "SENDER_ID_MAX"),
        (Sender(-1, 0, 0), "SENDER_ID_MAX"),
        (Sender(1, 2**32, 0), "SENDER_EPOCH_MAX"),
        (Sender(1, -1, 0), "SENDER_EPOCH_MAX"),
        (Sender(1, 0, 2**64), "SENDER_SEQUENCE_MAX"),
        (Sender(1, 0, -1), "SENDER_SEQUENCE_MAX"),
    ):
        with pytest.raises(BadSender, match=name):
            await stage.store.send("orders", Drafts(bodies=[b"b"]), sender=sender)
    await stage.crash()
    assert await stage.store.send("orders", Drafts(bodies=[b"a"]), sender=greatest) == ids
    assert await drain(stage) == [b"a"]


@every_store
async def test_a_sender_that_was_replaced_is_fenced(stage: Stage) -> None:
    await stage.store.send("orders", Drafts(bodies=[b"old"]), sender=Sender(7, 0, 5))
    await stage.store.send("orders", Drafts(bodies=[b"new"]), sender=Sender(7, 1, 5))
    with pytest.raises(SenderFenced, match="epoch 1"):
        await stage.store.send("orders", Drafts(bodies=[b"old"]), sender=Sender(7, 0, 6))
    assert await drain(stage) == [b"old", b"new"]


@every_store
async def test_a_repeat_too_old_to_be_known_is_refused_rather_than_sent_twice(stage: Stage) -> None:
    for sequence in range(SENDER_SENDS_MAX + 1):
        await stage.store.send("orders", Drafts(bodies=[b"a"]), sender=Sender(7, 0, sequence))
    with pytest.raises(SendForgotten, match="sequence 0"):
        await stage.store.send("orders", Drafts(bodies=[b"a"]), sender=Sender(7, 0, 0))
    assert len(await drain(stage)) == SENDER_SENDS_MAX + 1


async def refuse(stage: Stage, drafts: Drafts, *, naming: str) -> None:
    with pytest.raises(ValueError, match=naming):
        await stage.store.send("orders", drafts)
    assert (await stage.store.counts("orders")).live == 0
    await send(stage, b"next")
    assert await drain(stage) == [b"next"]


@every_store
async def test_a_tier_that_does_not_exist_is_refused(stage: Stage) -> None:
    await refuse(stage, Drafts(bodies=[b"a", b"b"], tiers=bytes([0, 5])), naming="tier 5")


@every_store
async def test_a_group_or_id_that_is_too_long_is_refused_with_the_limit(stage: Stage) -> None:
    long = b"x" * (NAME_BYTES_MAX + 1)
    await refuse(stage, Drafts(bodies=[b"a", b"b"], groups=[b"", long]), naming=str(NAME_BYTES_MAX))
    await refuse(stage, Drafts(bodies=[b"a", b"b"], dedup_ids=[b"", long]), naming=str(NAME_BYTES_MAX))
    await stage.store.send("orders", Drafts(bodies=[b"a"], groups=[long[1:]], dedup_ids=[long[1:]]))


@every_store
async def test_a_batch_that_is_too_large_is_refused_with_the_limit(stage: Stage) -> None:
    large = bytes(BATCH_BYTES_MAX // 2)
    await refuse(stage, Drafts(bodies=[large, large]), naming="BATCH_BYTES_MAX")
    await refuse(stage, Drafts(bodies=[b""], attributes=[large * 5]), naming="BATCH_BYTES_MAX")


@every_store
async def test_a_body_larger_than_the_queue_takes_is_refused_with_its_row_and_size(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(body_bytes_max=10))
    with pytest.raises(BodyTooLarge, match="draft 1 has 11 bytes; body_bytes_max is 10") as refused:
        await stage.store.send("orders", Drafts(bodies=[b"small", bytes(11), bytes(12)]))
    assert (refused.value.row, refused.value.size_bytes, refused.value.limit_bytes) == (1, 11, 10)
    assert (await stage.store.counts("orders")).live == 0
    await send(stage, bytes(10))
    assert bodies(await lease(stage)) == [bytes(10)]


@every_store
async def test_a_draft_of_the_wrong_kind_is_refused_with_the_name_of_its_field(stage: Stage) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("bodies of draft 1 is a str", {"bodies": [b"a", "b"]}),
        ("bodies is a bytes", {"bodies": b"ab"}),
        ("bodies is a str", {"bodies": "ab"}),
        ("bodies is a NoneType", {"bodies": None}),
        ("tiers is a list", {"bodies": [b"a"], "tiers": [1]}),
        ("groups of draft 0 is a str", {"bodies": [b"a"], "groups": ["g"]}),
        ("dedup_ids of draft 0 is 0x7", {"bodies": [b"a"], "dedup_ids": [7]}),
        ("dedup_ids of draft 0 is a str", {"bodies": [b"a"], "dedup_ids": ["7"]}),
        ("attributes of draft 0 is a dict", {"bodies": [b"a"], "attributes": [{}]}),
        ("visible_at_ms of draft 0 is a float", {"bodies": [b"a"], "visible_at_ms": [1.5]}),
        ("visible_at_ms of draft 0 is -0x4", {"bodies": [b"a"], "visible_at_ms": [-(2**70)]}),
        ("deliveries_max of draft 0 is a str", {"bodies": [b"a"], "deliveries_max": ["3"]}),
    ]
    for said, columns in wrong:
        with pytest.raises(BadDraft, match=said):
            await stage.store.send("orders", Drafts(**columns))
    assert (await stage.store.counts("orders")).live == 0
    await send(stage, b"a")
    await stage.crash()
    assert await drain(stage) == [b"a"]


@every_store
async def test_a_message_does_not_ask_for_more_deliveries_than_the_limit(stage: Stage) -> None:
    await refuse(stage, Drafts(bodies=[b"a"], deliveries_max=[DELIVERIES_MAX + 1]), naming=str(DELIVERIES_MAX))


@every_store
async def test_a_negative_delivery_limit_is_refused(stage: Stage) -> None:
    with pytest.raises(BadDraft, match="deliver"):
        await stage.store.send("orders", Drafts(bodies=[b"a"], deliveries_max=[-1]))


@every_store
async def test_a_message_is_not_scheduled_further_ahead_than_the_limit(stage: Stage) -> None:
    for wrong in (stage.now_ms() + DURATION_MS_MAX + 60_000, 2**63):
        await refuse(stage, Drafts(bodies=[b"a"], visible_at_ms=[wrong]), naming=str(DURATION_MS_MAX))


@every_store
async def test_columns_of_different_lengths_are_refused(stage: Stage) -> None:
    for drafts in (
        Drafts(bodies=[b"a", b"b"], tiers=bytes([2])),
        Drafts(bodies=[b"a", b"b"], groups=[b"g"]),
        Drafts(bodies=[b"a", b"b"], dedup_ids=[b"1"]),
        Drafts(bodies=[b"a", b"b"], attributes=[b"{}"]),
        Drafts(bodies=[b"a", b"b"], visible_at_ms=[0, 0, 0]),
        Drafts(bodies=[b"a", b"b"], deliveries_max=[3]),
    ):
        with pytest.raises(BadDraft):
            await stage.store.send("orders", drafts)
    assert (await stage.store.counts("orders")).live == 0
