"""What every store promises about messages that keep failing."""

import pytest

from penstock.contract.messages import Tier, WaitReason
from penstock.contract.queue_settings import BadSettings, DedupScope, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.interface import RedriveOrder, Release
from tests.conformance.stores import DONE, Stage, bodies, drain, every_store, is_empty_handed, lease, send

GRAVES = "graves"
FRAIL = QueueSettings(deliveries_max=2, dead_letters=GRAVES, backoff_ms_base=0)


async def fail(stage: Stage, times: int, *, want: int = 10) -> None:
    """Lease and release, and then let the store do what is due."""
    for _ in range(times):
        await stage.store.release("orders", (await lease(stage, want)).receipts(), Release(delay_ms=0, error="no"))
    await stage.store.tidy()


@every_store
async def test_what_cannot_be_buried_is_stuck_and_told_once(stage: Stage) -> None:
    told: list[tuple[str, str]] = []
    stage.store.watch_full_dead_letters(lambda *names: told.append(names))
    await stage.store.change("orders", QueueSettings(deliveries_max=1, size_max=2))
    ids = await send(stage, b"1", b"2")
    held = await lease(stage, 2)
    await stage.store.release("orders", held.receipts(), Release(error="boom"))
    await stage.store.tidy()
    # Its dead letters are made when they are needed, and as large as the queue.
    assert (await stage.store.describe("orders.dead")).settings.size_max == 2
    assert (await stage.store.describe("orders.dead")).settings.retention_ms == 0
    assert told == [], "they are full, and nothing is stuck"
    (third,) = await send(stage, b"3")
    held = await lease(stage, 1)
    await stage.store.release("orders", held.receipts(), Release(error="boom"))
    spent_at_ms = stage.now_ms()
    for _ in range(3):
        await stage.advance(10_000)
        await stage.store.tidy()
    counts = await stage.store.counts("orders")
    assert (counts.stuck, counts.delayed, counts.live) == (1, 0, 1)
    assert counts.stuck_since_ms is not None
    assert abs(counts.stuck_since_ms - spent_at_ms) < 10_000
    found = await stage.store.explain("orders", third)
    assert found is not None
    assert found.explanation.wait_reason is WaitReason.AWAITING_BURIAL
    assert told == [("orders", "orders.dead")]
    await stage.store.redrive("orders.dead", RedriveOrder(most=1, ids=ids[:1]))
    await stage.store.tidy()
    counts = await stage.store.counts("orders")
    assert (counts.stuck, counts.stuck_since_ms) == (0, None)


@every_store
async def test_a_message_whose_deliveries_are_spent_is_buried_as_it_was(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    ids = await stage.store.send(
        "orders",
        Drafts(
            bodies=[b"a", b"poison"], tiers=bytes([Tier.LOW, Tier.HIGH]), attributes=[b"", b"{}"], groups=[b"", b"g"]
        ),
    )
    await fail(stage, 2)
    assert await is_empty_handed(stage)
    assert (await stage.store.counts("orders")).live == 0
    buried = await lease(stage, queue=GRAVES)
    assert buried.attributes is not None
    assert buried.groups is not None
    rows = zip(buried.ids, bodies(buried), map(bytes, buried.attributes), buried.tiers, buried.groups, strict=True)
    assert sorted(rows) == sorted([(ids[0], b"a", b"", Tier.LOW, b""), (ids[1], b"poison", b"{}", Tier.HIGH, b"g")])


@every_store
async def test_a_dead_letter_queue_has_a_name_also_if_none_was_given(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=1))
    await send(stage, b"poison")
    await fail(stage, 1)
    assert await drain(stage, queue="orders.dead") == [b"poison"]


@every_store
async def test_a_delivery_that_lapses_counts_as_one_that_failed(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    await stage.store.send("orders", Drafts(bodies=[b"run", b"row"], groups=[b"", b"g"]))
    for _ in range(2):
        assert sorted(bodies(await lease(stage, lease_ms=1_000))) == [b"row", b"run"]
        await stage.advance(1_000)
    assert await is_empty_handed(stage)
    assert sorted(await drain(stage, queue=GRAVES)) == [b"row", b"run"]


@every_store
async def test_a_message_may_be_acked_at_its_last_delivery(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    await send(stage, b"a")
    await fail(stage, 1)
    assert await drain(stage) == [b"a"]


@every_store
async def test_a_message_may_have_a_delivery_limit_of_its_own(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    await stage.store.send("orders", Drafts(bodies=[b"once", b"twice", b"thrice"], deliveries_max=[1, 0, 3]))
    for body in (b"once", b"twice", b"thrice"):
        await fail(stage, 1)
        # A limit is remembered like everything else.
        await stage.crash()
        assert await drain(stage, queue=GRAVES) == [body]
    assert (await stage.store.counts("orders")).live == 0


@every_store
async def test_a_queue_without_a_limit_never_buries(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=0, backoff_ms_base=0))
    await send(stage, b"a")
    await fail(stage, 50)
    assert list((await lease(stage)).deliveries) == [51]


@every_store
async def test_a_dead_letter_is_delivered_again_without_a_limit(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    await send(stage, b"poison")
    await fail(stage, 2)
    for _ in range(10):
        held = await lease(stage, queue=GRAVES)
        await stage.store.release(GRAVES, held.receipts(), Release(delay_ms=0))
    await stage.store.tidy()
    assert await drain(stage, queue=GRAVES) == [b"poison"]


@every_store
async def test_a_limit_of_its_own_ends_where_a_message_is_buried(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=9))
    await stage.store.send("orders", Drafts(bodies=[b"poison"], deliveries_max=[1]))
    await fail(stage, 1)
    await stage.store.send("orders.dead", Drafts(bodies=[b"sent here"], deliveries_max=[1]))
    for _ in range(3):
        held = await lease(stage, queue="orders.dead")
        await stage.store.release("orders.dead", held.receipts(), Release(delay_ms=0))
        await stage.store.tidy()
    assert await stage.store.queues() == ["orders", "orders.dead"]
    assert sorted(await drain(stage, queue="orders.dead")) == [b"poison", b"sent here"]


@every_store
async def test_dead_letters_are_buried_again_only_where_it_is_said_where(stage: Stage) -> None:
    with pytest.raises(BadSettings, match="deliveries_max"):
        await stage.store.create("orders.dead", QueueSettings())
    await stage.store.create("orders.dead", QueueSettings(dead_letters=GRAVES))
    with pytest.raises(BadSettings, match="deliveries_max"):
        await stage.store.change("orders.dead", QueueSettings(deliveries_max=1))


@every_store
async def test_many_may_be_buried_at_once(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    sent = [b"%d" % number for number in range(350)]
    await send(stage, *sent)
    await fail(stage, 2, want=350)
    assert (await stage.store.counts("orders")).live == 0
    assert sorted(await drain(stage, queue=GRAVES)) == sorted(sent)


@every_store
async def test_a_full_dead_letter_queue_keeps_the_message_where_it_is(stage: Stage) -> None:
    await stage.store.create(GRAVES, QueueSettings(size_max=1, reserve_percent=(0,) * 5))
    await stage.store.change("orders", FRAIL)
    await send(stage, b"1", b"2")
    await fail(stage, 2)
    assert (await stage.store.counts("orders")).live == 1
    assert await is_empty_handed(stage)
    assert await drain(stage, queue=GRAVES) == [b"1"]
    await stage.store.tidy()
    assert (await stage.store.counts("orders")).live == 0
    assert await drain(stage, queue=GRAVES) == [b"2"]


@every_store
async def test_a_raised_limit_revives_what_could_not_be_buried(stage: Stage) -> None:
    await stage.store.create(GRAVES, QueueSettings(size_max=1, reserve_percent=(0,) * 5))
    await send(stage, b"full", queue=GRAVES)
    await stage.store.change("orders", FRAIL)
    await send(stage, b"a")
    await fail(stage, 2)
    assert await is_empty_handed(stage)
    await stage.store.change("orders", QueueSettings(deliveries_max=9, dead_letters=GRAVES))
    assert await drain(stage) == [b"a"]


@every_store
async def test_several_queues_may_share_their_dead_letters(stage: Stage) -> None:
    await stage.store.create("mail", FRAIL)
    await stage.store.change("orders", FRAIL)
    ids = await send(stage, b"order") + await send(stage, b"letter", queue="mail")
    await fail(stage, 2)
    for _ in range(2):
        held = await lease(stage, queue="mail")
        await stage.store.release("mail", held.receipts(), Release(delay_ms=0))
    await stage.store.tidy()
    await send(stage, b"sent here", queue=GRAVES)
    buried = await lease(stage, queue=GRAVES)
    assert sorted(bodies(buried)) == [b"letter", b"order", b"sent here"]
    assert set(ids) < set(buried.ids)


@every_store
async def test_what_was_sent_to_a_dead_letter_queue_stands_beside_what_was_buried_there(stage: Stage) -> None:
    await stage.store.create(GRAVES, QueueSettings())
    await stage.store.change("orders", QueueSettings(deliveries_max=1, dead_letters=GRAVES))
    for number in range(3):
        # With a limit of their own, so that a store keeps both kinds in the same way.
        rows = [b"sent %d" % number, b"sent too %d" % number]
        await stage.store.send(GRAVES, Drafts(bodies=rows, deliveries_max=[9, 9]))
        await send(stage, b"buried %d" % number)
        await fail(stage, 1)
    expected = [b"%b %d" % (kind, number) for number in range(3) for kind in (b"sent", b"sent too", b"buried")]
    assert sorted(bodies(await lease(stage, queue=GRAVES))) == sorted(expected)


@every_store
async def test_a_message_may_be_buried_twice_and_is_still_the_same(stage: Stage) -> None:
    await stage.store.create("deeper", QueueSettings())
    await stage.store.create(GRAVES, QueueSettings(deliveries_max=1, dead_letters="deeper"))
    await stage.store.change("orders", FRAIL)
    ids = await stage.store.send("orders", Drafts(bodies=[b"poison"], attributes=[b"{}"]))
    await fail(stage, 2)
    await stage.store.release(GRAVES, (await lease(stage, queue=GRAVES)).receipts())
    await stage.store.tidy()
    await stage.crash()
    buried = await lease(stage, queue="deeper")
    assert (list(buried.ids), bodies(buried)) == (ids, [b"poison"])
    assert buried.attributes is not None
    assert bytes(buried.attributes[0]) == b"{}"


@every_store
async def test_burying_frees_a_live_id(stage: Stage) -> None:
    await stage.store.change(
        "orders", QueueSettings(deliveries_max=1, dead_letters=GRAVES, dedup_scope=DedupScope.LIVE)
    )
    await stage.store.send("orders", Drafts(bodies=[b"poison"], dedup_ids=[b"1"]))
    await fail(stage, 1)
    await stage.store.send("orders", Drafts(bodies=[b"anew"], dedup_ids=[b"1"]))
    assert await drain(stage) == [b"anew"]


@every_store
async def test_dead_letters_survive_a_crash_with_body_and_id(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    tiers = bytes([2, 0, 2])
    ids = await stage.store.send(
        "orders", Drafts(bodies=[b"a", b"b", b"c"], tiers=tiers, attributes=[b"1", b"2", b"3"])
    )
    await fail(stage, 2)
    await stage.crash()
    assert (await stage.store.counts("orders")).live == 0
    buried = await lease(stage, queue=GRAVES)
    assert buried.attributes is not None
    rows = zip(buried.ids, bodies(buried), map(bytes, buried.attributes), strict=True)
    assert sorted(rows) == sorted(zip(ids, [b"a", b"b", b"c"], [b"1", b"2", b"3"], strict=True))
    assert await stage.store.ack(GRAVES, buried.receipts()) == [DONE] * 3


@every_store
async def test_a_rejected_message_is_buried_with_deliveries_left(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=9, dead_letters=GRAVES, backoff_ms_base=0))
    await send(stage, b"poison", b"good")
    held = await lease(stage, 2)
    assert await stage.store.release(
        "orders", held.receipts()[:1], Release(error="no such customer", is_rejected=True)
    ) == [DONE]
    assert await stage.store.release("orders", held.receipts()[1:], Release(delay_ms=0)) == [DONE]
    assert await drain(stage) == [b"good"]
    buried = await lease(stage, queue=GRAVES)
    assert bodies(buried) == [b"poison"]
    assert buried.errors is not None
    assert list(buried.errors) == ["no such customer"]


@every_store
async def test_a_rejection_is_remembered_after_a_restart(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=9, dead_letters=GRAVES, backoff_ms_base=0))
    await send(stage, b"poison")
    await stage.store.release("orders", (await lease(stage)).receipts(), Release(is_rejected=True))
    await stage.crash()
    assert await is_empty_handed(stage)
    assert await drain(stage, queue=GRAVES) == [b"poison"]


@every_store
async def test_what_is_given_back_untouched_has_all_its_deliveries_still(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=1, dead_letters=GRAVES))
    await send(stage, b"a", b"b")
    for _ in range(3):
        held = await lease(stage, 2)
        assert await stage.store.release("orders", held.receipts(), Release(is_untouched=True)) == [DONE] * 2
    await stage.crash()
    held = await lease(stage, 2)
    assert list(held.deliveries) == [1, 1]
    assert sorted(bodies(held)) == [b"a", b"b"]
