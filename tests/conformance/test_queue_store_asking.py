"""What every store promises to those who ask: which queues there are, what is in one, why a message waits."""

import pytest

from penstock.contract.limits import IDS_MAX, PAGE_MAX
from penstock.contract.messages import Tier, WaitReason
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts, Receipt
from penstock.store.interface import EscalationOrder, MessageFilter, RedriveOrder, Release
from tests.conformance.stores import DONE, STALE, Stage, every_store, is_empty_handed, lease, send

NOT_IDS = (
    "",
    "-",
    "1",
    "x-y",
    "0-0",
    "-1-2",
    "1-2-3",
    "0x1-0x2",
    " 1-2",
    "1-2\n",
    "1-\uff12",
    "01-2",
    "F-A",
    "1-" + "f" * 40,
)


@every_store
async def test_queues_are_listed_by_name_in_pages(stage: Stage) -> None:
    for name in ("mail", "mail.dead", "Mail", "orders-2", "maps"):
        await stage.store.create(name, QueueSettings(deliveries_max=0))
    assert await stage.store.queues() == ["Mail", "mail", "mail.dead", "maps", "orders", "orders-2"]
    assert await stage.store.queues(prefix="mail") == ["mail", "mail.dead"]
    first = await stage.store.queues(most=4)
    assert first == ["Mail", "mail", "mail.dead", "maps"]
    assert await stage.store.queues(after=first[-1], most=4) == ["orders", "orders-2"]
    assert await stage.store.queues(prefix="ma", after="mail.dead") == ["maps"]
    await stage.store.delete("maps")
    assert await stage.store.queues(prefix="maps") == []


@every_store
async def test_a_page_has_a_limit_that_is_named(stage: Stage) -> None:
    for most in (0, PAGE_MAX + 1):
        for verb in (
            stage.store.queues(most=most),
            stage.store.peek("orders", most=most),
            stage.store.audit("orders", most=most),
        ):
            with pytest.raises(ValueError, match="PAGE_MAX"):
                await verb
        with pytest.raises(ValueError, match="PAGE_MAX"):
            await stage.store.redrive("orders", RedriveOrder(most=most))


@every_store
async def test_a_queue_is_described_with_its_settings_and_since_when_it_is_there(stage: Stage) -> None:
    settings = QueueSettings(lease_ms=5_000, dead_letters="graves")
    before_ms = stage.now_ms()
    await stage.store.create("mail", settings)
    after_ms = stage.now_ms()
    found = await stage.store.describe("mail")
    assert (found.queue, found.settings) == ("mail", settings)
    assert found.created_at_ms is None or before_ms <= found.created_at_ms <= after_ms
    await stage.crash()
    assert (await stage.store.describe("mail")).created_at_ms == found.created_at_ms


@every_store
async def test_a_queue_has_an_id_of_its_own_that_no_later_queue_of_its_name_has(stage: Stage) -> None:
    first = (await stage.store.describe("orders")).id
    await stage.store.change("orders", QueueSettings(lease_ms=1))
    await stage.reopen()
    assert (await stage.store.describe("orders")).id == first
    assert first.startswith("q_")
    await stage.store.delete("orders")
    await stage.store.create("orders", QueueSettings())
    assert (await stage.store.describe("orders")).id != first


@every_store
async def test_a_description_names_the_dead_letters_once_they_are_there(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=1))
    assert (await stage.store.describe("orders")).dead_letters is None
    await send(stage, b"poison")
    await stage.store.release("orders", (await lease(stage)).receipts())
    await stage.store.tidy()
    assert (await stage.store.describe("orders")).dead_letters == "orders.dead"
    await stage.store.change("orders", QueueSettings(dead_letters="graves"))
    assert (await stage.store.describe("orders")).dead_letters is None
    await stage.store.create("graves", QueueSettings())
    assert (await stage.store.describe("orders")).dead_letters == "graves"


@every_store
async def test_a_description_bounds_what_a_message_of_each_tier_may_have_to_wait(stage: Stage) -> None:
    empty = (await stage.store.describe("orders")).bounds
    assert [bound.leases for bound in empty] == sorted(bound.leases for bound in empty)
    assert empty[Tier.NORMAL].wait_ms is None
    await send(stage, *[b"x"] * 100)
    await lease(stage, 50)
    loaded = (await stage.store.describe("orders")).bounds
    assert loaded[Tier.NORMAL].leases > 50
    assert loaded[Tier.NORMAL].leases > empty[Tier.NORMAL].leases
    assert (loaded[Tier.NORMAL].wait_ms or 0) > 0


@every_store
async def test_peeking_shows_what_waits_and_leases_nothing(stage: Stage) -> None:
    tiers = bytes([Tier.LOW, Tier.CRITICAL, Tier.NORMAL])
    ids = await stage.store.send(
        "orders",
        Drafts(bodies=[b"c", b"a", b"b"], tiers=tiers, attributes=[b"", b"{}", b""], groups=[b"", b"", b"g"]),
    )
    seen = (await stage.store.peek("orders", most=10)).messages
    assert [(each.id, bytes(each.body), each.tier) for each in seen] == [
        (ids[1], b"a", Tier.CRITICAL),
        (ids[2], b"b", Tier.NORMAL),
        (ids[0], b"c", Tier.LOW),
    ]
    assert [bytes(each.attributes) for each in seen] == [b"{}", b"", b""]
    assert [each.group for each in seen] == [b"", b"g", b""]
    assert {(each.place, each.deliveries, each.error, each.past) for each in seen} == {("waiting", 0, "", None)}
    assert [each.id for each in (await stage.store.peek("orders", most=1)).messages] == [ids[1]]
    assert len(await lease(stage)) == 3
    assert (await stage.store.peek("orders", MessageFilter(place="waiting"), most=10)).messages == []
    leased = (await stage.store.peek("orders", most=10)).messages
    assert {(each.id, each.place, each.deliveries) for each in leased} == {(each, "leased", 1) for each in ids}


@every_store
async def test_peeking_after_a_restart_finds_the_bodies_in_the_store(stage: Stage) -> None:
    ids = await send(stage, *[b"%d" % number for number in range(300)])
    await stage.crash()
    seen = (await stage.store.peek("orders", most=300)).messages
    assert [each.id for each in seen] == ids
    assert [bytes(each.body) for each in seen] == [b"%d" % number for number in range(300)]


@every_store
async def test_a_message_may_be_looked_at_wherever_it_is(stage: Stage) -> None:
    await stage.store.create("graves", QueueSettings(size_max=1, reserve_percent=(0,) * 5))
    await send(stage, b"full", queue="graves")
    await stage.store.change("orders", QueueSettings(deliveries_max=1, dead_letters="graves"))
    (spent,) = await send(stage, b"spent")
    sent_ms = stage.now_ms()
    await stage.store.release("orders", (await lease(stage)).receipts(), Release(error="broken"))
    later_ms = stage.now_ms() + 90_000
    (leased,) = await send(stage, b"leased")
    await lease(stage)
    (resting,) = await stage.store.send("orders", Drafts(bodies=[b"resting"], visible_at_ms=[later_ms]))
    (waiting,) = await send(stage, b"waiting")
    found = [await stage.store.look("orders", each) for each in (waiting, resting, leased, spent)]
    assert [None if each is None else (each.place, bytes(each.body)) for each in found] == [
        ("waiting", b"waiting"),
        ("resting", b"resting"),
        ("leased", b"leased"),
        ("spent", b"spent"),
    ]
    assert [None if each is None else each.deliveries for each in found] == [0, 0, 1, 1]
    assert [None if each is None else each.visible_at_ms for each in found] == [None, later_ms, None, None]
    assert found[3] is not None
    assert found[3].error == "broken"
    assert found[3].sent_at_ms <= sent_ms


@every_store
async def test_a_settled_message_is_not_seen_any_more(stage: Stage) -> None:
    (message,) = await send(stage, b"a")
    await stage.store.ack("orders", (await lease(stage)).receipts())
    assert await stage.store.look("orders", message) is None
    assert await stage.store.explain("orders", message) is None
    assert await stage.store.receipts("orders", [message]) == [None]


@every_store
async def test_what_is_no_id_is_unknown_and_no_error(stage: Stage) -> None:
    await stage.store.create("mail", QueueSettings())
    (real,) = await send(stage, b"a")
    (foreign,) = await send(stage, b"b", queue="mail")
    for text in (*NOT_IDS, foreign, real.upper() + "0", real + "f"):
        assert await stage.store.look("orders", text) is None, text
        assert await stage.store.explain("orders", text) is None, text
        assert await stage.store.receipts("orders", [text]) == [None], text
    assert (await stage.store.look("orders", real)) is not None


@every_store
async def test_an_explanation_counts_the_turns_of_other_groups(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(noisy_percent=100, noisy_time_percent=100))
    ids = await _send_in_groups(stage, *[(b"many", b"m")] * 30, (b"few", b"f"), (b"few", b"f"), (b"", b"plain"))
    assert await _ahead(stage, ids[0]) == 2, "each of the others may have its turn before"
    assert await _ahead(stage, ids[30]) == 2, "and not thirty messages of another group"
    assert await _ahead(stage, ids[31]) == 5, "it is the second of its own"
    assert await _ahead(stage, ids[32]) == 2
    assert await _ahead(stage, ids[29]) == 32, "there are not more than there are"


@every_store
async def test_an_explanation_tells_of_noisy_groups(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(noisy_time_percent=100, noisy_leased_min=3))
    await _send_in_groups(stage, *[(b"loud", b"first")] * 9, *[(b"louder", b"first")] * 9)
    await lease(stage, 18)
    ids = await _send_in_groups(
        stage,
        *[(b"loud", b"l")] * 5,
        *[(b"louder", b"l")] * 5,
        *[(b"quiet", b"q")] * 4,
        *[(b"calm", b"c")] * 2,
        (b"", b"plain"),
    )
    assert await _ahead(stage, ids[0]) == 8, "seven that are quiet, and a turn of the other noisy one"
    assert await _ahead(stage, ids[1]) == 10
    assert await _ahead(stage, ids[4]) == 16
    assert await _ahead(stage, ids[10]) == 4, "noisy ones count among those who may have a turn"
    await stage.store.change("orders", QueueSettings(noisy_time_percent=100, noisy_percent=100))
    assert await _ahead(stage, ids[0]) == 4, "no group is noisy now"


async def _send_in_groups(stage: Stage, *rows: tuple[bytes, bytes]) -> list[str]:
    groups, bodies = zip(*rows, strict=True)
    return list(await stage.store.send("orders", Drafts(bodies=list(bodies), groups=list(groups))))


async def _ahead(stage: Stage, message: str) -> int:
    explained = await stage.store.explain("orders", message)
    assert explained is not None
    assert explained.explanation.wait_reason is WaitReason.BEHIND_OTHERS
    return explained.explanation.messages_ahead


@every_store
async def test_an_explanation_says_what_a_message_waits_for_and_how_long_at_the_worst(stage: Stage) -> None:
    first, *_, last = await send(stage, *[b"x"] * 20)
    explained = await stage.store.explain("orders", first)
    assert explained is not None
    assert (explained.id, explained.explanation.wait_reason) == (first, WaitReason.NONE)
    explained = await stage.store.explain("orders", last)
    assert explained is not None
    assert (explained.explanation.wait_reason, explained.explanation.messages_ahead) == (WaitReason.BEHIND_OTHERS, 19)
    assert explained.bound is not None
    assert explained.bound.leases >= 20
    assert explained.bound.wait_ms is None
    await lease(stage, 10)
    explained = await stage.store.explain("orders", last)
    assert explained is not None
    assert explained.bound is not None
    assert (explained.bound.wait_ms or 0) > 0
    explained = await stage.store.explain("orders", first)
    assert explained is not None
    assert (explained.explanation.wait_reason, explained.bound) == (WaitReason.IN_FLIGHT, None)


@every_store
async def test_receipts_of_what_is_leased_are_found_by_id(stage: Stage) -> None:
    ids = await stage.store.send("orders", Drafts(bodies=[b"%d" % row for row in range(6)], groups=[b"", b"g"] * 3))
    held = [await lease(stage, 2), await lease(stage, 2)]
    receipts: dict[str, Receipt | None] = {
        each: receipt for delivery in held for each, receipt in zip(delivery.ids, delivery.receipts(), strict=True)
    }
    expected = [receipts.get(each) for each in ids]
    assert expected.count(None) == 2
    assert await stage.store.receipts("orders", ids) == expected
    assert await stage.store.receipts("orders", ids[::-1]) == expected[::-1]
    found = [each for each in expected if each is not None]
    assert await stage.store.ack("orders", found) == [DONE] * 4
    assert await stage.store.receipts("orders", ids) == [None] * 6


@every_store
async def test_a_receipt_found_by_id_is_that_of_the_present_lease(stage: Stage) -> None:
    ids = await send(stage, b"a", b"b")
    lapsed = await lease(stage, lease_ms=1_000)
    await stage.advance(1_000)
    assert await stage.store.receipts("orders", ids) == [None, None]
    held = await lease(stage)
    assert await stage.store.receipts("orders", ids) == list(held.receipts())
    assert await stage.store.ack("orders", lapsed.receipts()) == [STALE, STALE]


@every_store
async def test_ids_in_one_call_have_a_limit_that_is_named(stage: Stage) -> None:
    ids = ["1-2"] * (IDS_MAX + 1)
    with pytest.raises(ValueError, match="IDS_MAX"):
        await stage.store.receipts("orders", ids)
    with pytest.raises(ValueError, match="IDS_MAX"):
        await stage.store.escalate("orders", ids, EscalationOrder(tier=0, actor="ada", reason=""))
    with pytest.raises(ValueError, match="IDS_MAX"):
        await stage.store.redrive("orders", RedriveOrder(most=1, ids=ids))


@every_store
async def test_asking_sees_what_time_has_done(stage: Stage) -> None:
    ids = await stage.store.send("orders", Drafts(bodies=[b"x"], visible_at_ms=[stage.now_ms() + 5_000]))
    assert (await stage.store.peek("orders", MessageFilter(place="waiting"), most=1)).messages == []
    await stage.advance(5_000)
    assert [each.id for each in (await stage.store.peek("orders", most=1)).messages] == ids
    await lease(stage, lease_ms=1_000)
    await stage.advance(1_000)
    found = await stage.store.look("orders", ids[0])
    assert found is not None
    assert (found.place, found.deliveries) == ("waiting", 1)
    assert not await is_empty_handed(stage)
