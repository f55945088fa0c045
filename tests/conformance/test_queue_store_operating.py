"""What every store promises to operators: who goes first, what is tried again, what becomes of dead letters."""

import pytest

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import DAY_MS, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.errors import DeadLettersShared, QueueNotFound
from penstock.store.interface import EscalationOrder, MessageFilter, Outcome, RedriveOrder, Release, Remains
from tests.conformance.stores import DONE, Stage, bodies, drain, every_store, is_empty_handed, lease, send

GRAVES = "graves"
FRAIL = QueueSettings(deliveries_max=1, dead_letters=GRAVES)
NOT_PENDING, UNCHANGED, UNKNOWN = Outcome.NOT_PENDING, Outcome.UNCHANGED, Outcome.UNKNOWN


async def bury(stage: Stage, *sent: bytes, queue: str = "orders") -> list[str]:
    """Send messages, fail each once, and let the store bury them."""
    ids = await send(stage, *sent, queue=queue)
    held = await lease(stage, len(sent), queue=queue)
    await stage.store.release(queue, held.receipts(), Release(error=f"no such {queue}"))
    await stage.store.tidy()
    return ids


@every_store
async def test_an_escalated_message_is_leased_before_others(stage: Stage) -> None:
    ids = await send(stage, b"1", b"2", b"3")
    order = EscalationOrder(tier=Tier.CRITICAL, actor="ada", reason="vip")
    assert await stage.store.escalate("orders", [ids[2]], order) == [DONE]
    await stage.crash()
    assert await drain(stage, want=1) == [b"3", b"1", b"2"]


@every_store
async def test_an_escalation_answers_for_each_id(stage: Stage) -> None:
    await stage.store.create("mail", QueueSettings())
    (foreign,) = await send(stage, b"x", queue="mail")
    leased, settled, waiting = await send(stage, b"1", b"2", b"3")
    held = await lease(stage, 2)
    await stage.store.ack("orders", held.receipts()[1:])
    (resting,) = await stage.store.send("orders", Drafts(bodies=[b"4"], visible_at_ms=[stage.now_ms() + DAY_MS]))
    ids = [leased, settled, waiting, resting, foreign, "nonsense", waiting]
    outcomes = await stage.store.escalate("orders", ids, EscalationOrder(tier=Tier.HIGH, actor="ada", reason=""))
    assert outcomes == [NOT_PENDING, UNKNOWN, DONE, DONE, UNKNOWN, UNKNOWN, DONE]
    found = [await stage.store.look("orders", each) for each in (leased, waiting, resting)]
    assert [None if each is None else (each.tier, each.is_escalated) for each in found] == [
        (Tier.NORMAL, False),
        (Tier.HIGH, True),
        (Tier.HIGH, True),
    ]


@every_store
async def test_an_escalation_never_makes_a_message_less_urgent(stage: Stage) -> None:
    drafts = Drafts(bodies=[b"1", b"2", b"3", b"4"], tiers=bytes([0, 1, 2, 1]), groups=[b"", b"", b"", b"g"])
    ids = await stage.store.send("orders", drafts)
    outcomes = await stage.store.escalate("orders", ids, EscalationOrder(tier=Tier.HIGH, actor="ada", reason=""))
    assert outcomes == [UNCHANGED, UNCHANGED, DONE, UNCHANGED]
    assert [each.ids for each in await stage.store.audit("orders", most=10)] == [[ids[2]]]
    assert (
        await stage.store.escalate("orders", ids, EscalationOrder(tier=Tier.HIGH, actor="ada", reason="again"))
        == [UNCHANGED] * 4
    )
    assert len(await stage.store.audit("orders", most=10)) == 1
    await stage.crash()
    found = await drain(stage, want=4)
    assert (found[0], found[3]) == (b"1", b"3")


@every_store
async def test_lowering_only_makes_messages_less_urgent(stage: Stage) -> None:
    drafts = Drafts(bodies=[b"1", b"2", b"3", b"4"], tiers=bytes([0, 2, 4, 0]), groups=[b"", b"", b"", b"g"])
    ids = await stage.store.send("orders", drafts)
    outcomes = await stage.store.escalate(
        "orders", ids, EscalationOrder(tier=Tier.NORMAL, actor="ada", reason="", lowers=True)
    )
    assert outcomes == [DONE, UNCHANGED, UNCHANGED, DONE]
    found = [await stage.store.look("orders", each) for each in ids]
    assert [each and each.tier for each in found] == [2, 2, 4, 2]


@every_store
async def test_an_escalation_to_the_same_tier_changes_when_it_ends(stage: Stage) -> None:
    ids = await send(stage, b"a")
    until_ms = stage.now_ms() + 60_000
    assert await stage.store.escalate(
        "orders", ids, EscalationOrder(tier=Tier.HIGH, actor="ada", reason="", until_ms=until_ms)
    ) == [DONE]
    assert await stage.store.escalate("orders", ids, EscalationOrder(tier=Tier.HIGH, actor="ada", reason="stay")) == [
        DONE
    ]
    await stage.advance(60_000)
    found = await stage.store.look("orders", ids[0])
    assert found is not None
    assert (found.tier, found.is_escalated) == (Tier.HIGH, True)


@every_store
async def test_an_escalation_may_end_by_itself(stage: Stage) -> None:
    ids = await send(stage, b"a")
    until_ms = stage.now_ms() + 60_000
    await stage.store.escalate(
        "orders", ids, EscalationOrder(tier=Tier.HIGH, actor="ada", reason="for an hour", until_ms=until_ms)
    )
    await stage.advance(60_000)
    found = await stage.store.look("orders", ids[0])
    assert found is not None
    assert (found.tier, found.is_escalated) == (Tier.NORMAL, False)


@every_store
async def test_messages_of_a_group_that_are_escalated_together_take_turns_with_other_groups(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(noisy_percent=100, noisy_time_percent=100))
    few = Drafts(bodies=[b"few"] * 3, groups=[b"few"] * 3, tiers=bytes([Tier.HIGH]) * 3)
    await stage.store.send("orders", few)
    many = await stage.store.send("orders", Drafts(bodies=[b"many"] * 12, groups=[b"many"] * 12))
    await stage.store.escalate("orders", many, EscalationOrder(tier=Tier.HIGH, actor="ada", reason="vip"))
    await stage.store.send("orders", few)
    found = bodies(await lease(stage, 12))
    assert (found.count(b"few"), found.count(b"many")) == (6, 6)


@every_store
async def test_a_message_that_wakes_while_it_is_escalated_ages_from_the_end_of_that(stage: Stage) -> None:
    await stage.store.create("slow", QueueSettings(aging_ms=(0, 0, 0, 0, 20_000)))
    now_ms = stage.now_ms()
    later = Drafts(bodies=[b"1"], tiers=bytes([Tier.BACKGROUND]), visible_at_ms=[now_ms + 10_000])
    ids = await stage.store.send("slow", later)
    await stage.store.escalate(
        "slow", ids, EscalationOrder(tier=Tier.HIGH, actor="ada", reason="", until_ms=now_ms + 25_000)
    )
    # All of it is due when a verb looks at the clock.
    for wait_ms, tier in ((32_000, Tier.BACKGROUND), (12_000, Tier.BACKGROUND), (2_000, Tier.LOW)):
        await stage.advance(wait_ms)
        found = await stage.store.look("slow", ids[0])
        assert found is not None
        assert (found.place, found.tier) == ("waiting", tier)


@every_store
async def test_a_leased_message_ages_and_its_escalation_ends(stage: Stage) -> None:
    await stage.store.create("slow", QueueSettings(aging_ms=(0, 0, 10_000, 0, 0)))
    plain, raised = await send(stage, b"plain", b"raised", queue="slow")
    until_ms = stage.now_ms() + 5_000
    await stage.store.escalate(
        "slow", [raised], EscalationOrder(tier=Tier.CRITICAL, actor="ada", reason="", until_ms=until_ms)
    )
    await lease(stage, 2, queue="slow")
    for wait_ms, tiers in ((4_000, (2, 0)), (1_000, (2, 2)), (5_000, (1, 2)), (5_000, (1, 1))):
        await stage.advance(wait_ms)
        found = [await stage.store.look("slow", each) for each in (plain, raised)]
        assert [None if each is None else each.tier for each in found] == list(tiers)
        page = await stage.store.live("slow", most=10)
        assert dict(zip(page.ids, page.tier, strict=True)) == dict(zip((plain, raised), tiers, strict=True))
    assert len((await stage.store.peek("slow", MessageFilter(tier=1), most=10)).messages) == 2


@every_store
async def test_an_escalation_that_cannot_be_is_refused_and_changes_nothing(stage: Stage) -> None:
    ids = await send(stage, b"a")
    for tier, until_ms, name in ((5, 0, "tier"), (-1, 0, "tier"), (0, stage.now_ms(), "until_ms")):
        with pytest.raises(ValueError, match=name):
            await stage.store.escalate(
                "orders", ids, EscalationOrder(tier=tier, actor="ada", reason="", until_ms=until_ms)
            )
    assert await stage.store.audit("orders", most=10) == []


@every_store
async def test_escalations_are_read_back_with_who_and_why_the_newest_first(stage: Stage) -> None:
    ids = await send(stage, b"1", b"2", b"3")
    until_ms = stage.now_ms() + DAY_MS
    await stage.store.escalate("orders", ids[:2], EscalationOrder(tier=Tier.HIGH, actor="ada", reason="late \udc80"))
    await stage.store.escalate(
        "orders", ids[2:], EscalationOrder(tier=Tier.CRITICAL, actor="bob", reason="vip", until_ms=until_ms)
    )
    await stage.store.escalate(
        "orders", ["ffff-2"], EscalationOrder(tier=Tier.CRITICAL, actor="eve", reason="nothing was moved")
    )
    await stage.crash()
    newest, oldest = await stage.store.audit("orders", most=10)
    assert (newest.actor, newest.reason, newest.tier, newest.until_ms) == ("bob", "vip", Tier.CRITICAL, until_ms)
    assert (oldest.actor, oldest.reason, oldest.tier, oldest.until_ms) == ("ada", "late ?", Tier.HIGH, 0)
    assert (list(newest.ids), sorted(oldest.ids)) == (ids[2:], sorted(ids[:2]))
    assert oldest.at_ms <= newest.at_ms <= stage.now_ms()
    assert await stage.store.audit("orders", most=1) == [newest]


@every_store
async def test_a_dead_letter_may_be_escalated_by_the_id_it_always_had(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    ids = await bury(stage, b"1", b"2")
    assert await stage.store.escalate(GRAVES, ids[1:], EscalationOrder(tier=Tier.HIGH, actor="ada", reason="")) == [
        DONE
    ]
    (audited,) = await stage.store.audit(GRAVES, most=10)
    assert list(audited.ids) == ids[1:]
    assert await drain(stage, queue=GRAVES, want=1) == [b"2", b"1"]


@every_store
async def test_a_dead_letter_tells_its_past(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=2, dead_letters=GRAVES, backoff_ms_base=0))
    before_ms = stage.now_ms()
    ids = await send(stage, b"poison")
    sent_ms = stage.now_ms()
    for error in ("first", "second"):
        await stage.advance(1_000)
        await stage.store.release("orders", (await lease(stage)).receipts(), Release(delay_ms=0, error=error))
    await stage.store.tidy()
    (seen,) = (await stage.store.peek(GRAVES, most=10)).messages
    assert (seen.id, bytes(seen.body), seen.error, seen.deliveries) == (ids[0], b"poison", "second", 0)
    assert seen.sent_at_ms >= sent_ms + 2_000
    past = seen.past
    assert past is not None
    assert before_ms <= past.sent_at_ms <= sent_ms
    described = await stage.store.describe("orders")
    assert (past.queue, past.queue_id, past.deliveries) == ("orders", described.id, 2)
    assert await stage.store.look(GRAVES, ids[0]) == seen
    assert await stage.store.look("orders", ids[0]) is None
    await stage.store.delete("orders")
    await stage.crash()
    (again,) = (await stage.store.peek(GRAVES, most=10)).messages
    assert again.past == past._replace(queue=None)


@every_store
async def test_a_worker_on_dead_letters_is_told_their_past(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    await bury(stage, b"poison")
    await send(stage, b"sent here", queue=GRAVES)
    held = await lease(stage, queue=GRAVES)
    assert held.errors is not None
    assert held.pasts is not None
    told = {bytes(body): (error, past) for body, error, past in zip(held.bodies, held.errors, held.pasts, strict=True)}
    assert told[b"sent here"] == ("", None)
    error, past = told[b"poison"]
    assert past is not None
    assert (error, past.queue, past.deliveries) == ("no such orders", "orders", 1)


@every_store
async def test_a_delivery_without_a_past_says_so_in_one_word(stage: Stage) -> None:
    await stage.store.send("orders", Drafts(bodies=[b"a", b"b"], groups=[b"", b"g"]))
    held = await lease(stage)
    assert (held.errors, held.pasts) == (None, None)
    await stage.store.release("orders", held.receipts()[:1], Release(delay_ms=0, error="once"))
    held = await lease(stage)
    assert (held.errors, held.pasts) == (["once"], None)


@every_store
async def test_redriven_messages_go_back_to_where_they_came_from(stage: Stage) -> None:
    await stage.store.create("mail", FRAIL)
    await stage.store.change("orders", FRAIL)
    orders, mail = await bury(stage, b"1", b"2"), await bury(stage, b"letter", queue="mail")
    redriven = await stage.store.redrive(GRAVES, RedriveOrder(most=10))
    assert {name: list(ids) for name, ids in redriven.moved.items()} == {"orders": orders, "mail": mail}
    assert (redriven.without_origin, redriven.remaining) == ([], 0)
    await stage.crash()
    assert (await stage.store.counts(GRAVES)).live == 0
    held = await lease(stage)
    assert (list(held.ids), bodies(held), list(held.deliveries)) == (orders, [b"1", b"2"], [1, 1])
    assert await drain(stage, queue="mail") == [b"letter"]


@every_store
async def test_dead_letters_under_the_default_name_go_back_as_well(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=1))
    ids = await bury(stage, b"poison")
    assert (await stage.store.redrive("orders.dead", RedriveOrder(most=10))).moved == {"orders": ids}
    assert await drain(stage) == [b"poison"]


@every_store
async def test_a_redrive_may_go_elsewhere_and_take_only_some(stage: Stage) -> None:
    await stage.store.create("mail", FRAIL)
    await stage.store.create("repair", QueueSettings())
    await stage.store.change("orders", FRAIL)
    orders = await bury(stage, b"1", b"2", b"3")
    mail = await bury(stage, b"letter", queue="mail")
    redriven = await stage.store.redrive(
        GRAVES, RedriveOrder(into="repair", most=10, ids=[orders[1], "ffff-2", "nonsense"])
    )
    assert (redriven.moved, redriven.remaining) == ({"repair": [orders[1]]}, 3)
    redriven = await stage.store.redrive(GRAVES, RedriveOrder(into="repair", most=10, ids=mail))
    assert (redriven.moved, redriven.remaining) == ({"repair": mail}, 2)
    redriven = await stage.store.redrive(GRAVES, RedriveOrder(into="repair", most=1))
    assert (redriven.moved, redriven.remaining) == ({"repair": [orders[0]]}, 1)
    assert sorted(await drain(stage, queue="repair")) == [b"1", b"2", b"letter"]
    assert [each.id for each in (await stage.store.peek(GRAVES, most=10)).messages] == orders[2:]


@every_store
async def test_a_dry_run_says_what_would_go_and_moves_nothing(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    ids = await bury(stage, b"1", b"2")
    tried = await stage.store.redrive(GRAVES, RedriveOrder(most=1, is_dry_run=True))
    assert (tried.moved, tried.remaining) == ({"orders": ids[:1]}, 1)
    assert (await stage.store.counts(GRAVES)).live == 2
    assert await stage.store.redrive(GRAVES, RedriveOrder(most=1)) == tried


@every_store
async def test_a_redrive_leaves_what_has_no_room_where_it_would_go(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    ids = await bury(stage, b"1", b"2", b"3")
    await stage.store.change("orders", QueueSettings(size_max=3, reserve_percent=(0,) * 5))
    await send(stage, b"new")
    redriven = await stage.store.redrive(GRAVES, RedriveOrder(most=10))
    assert (redriven.moved, redriven.remaining) == ({"orders": ids[:2]}, 1)
    assert (await stage.store.redrive(GRAVES, RedriveOrder(most=10))).moved == {}
    assert sorted(await drain(stage)) == [b"1", b"2", b"new"]
    assert (await stage.store.redrive(GRAVES, RedriveOrder(most=10))).moved == {"orders": ids[2:]}


@every_store
async def test_a_redrive_leaves_what_is_leased(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    ids = await bury(stage, b"1", b"2")
    held = await lease(stage, 1, queue=GRAVES)
    redriven = await stage.store.redrive(GRAVES, RedriveOrder(most=10))
    assert (redriven.moved, redriven.remaining) == ({"orders": ids[1:]}, 1)
    assert await stage.store.ack(GRAVES, held.receipts()) == [DONE]


@every_store
async def test_dead_letters_of_a_queue_that_is_gone_stay_until_a_target_is_named(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    ids = await bury(stage, b"1", b"2")
    await stage.store.delete("orders")
    # Another queue of the same name is another queue.
    await stage.store.create("orders", FRAIL)
    redriven = await stage.store.redrive(GRAVES, RedriveOrder(most=10))
    assert (redriven.moved, redriven.without_origin, redriven.remaining) == ({}, ids, 2)
    redriven = await stage.store.redrive(GRAVES, RedriveOrder(most=10, into="orders"))
    assert redriven.moved == {"orders": ids}
    assert sorted(await drain(stage)) == [b"1", b"2"]


@every_store
async def test_a_message_may_be_buried_and_redriven_again_and_again(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    ids = await bury(stage, b"poison")
    for round_trip in range(1, 4):
        assert (await stage.store.redrive(GRAVES, RedriveOrder(most=1))).moved == {"orders": ids}
        held = await lease(stage)
        assert held.pasts is not None
        assert held.pasts[0] is not None
        assert (held.pasts[0].queue, held.pasts[0].deliveries) == ("orders", round_trip)
        await stage.store.release("orders", held.receipts(), Release(error="again"))
        await stage.store.tidy()
        await stage.crash()
    found = await stage.store.look(GRAVES, ids[0])
    assert found is not None
    assert found.past is not None
    assert (found.past.deliveries, found.error) == (4, "again")


@every_store
async def test_what_was_sent_to_a_queue_is_none_of_its_dead_letters(stage: Stage) -> None:
    await stage.store.create(GRAVES, QueueSettings(deliveries_max=0))
    ids = await send(stage, b"a", queue=GRAVES)
    redriven = await stage.store.redrive(GRAVES, RedriveOrder(into="orders", most=10))
    assert (redriven.moved, redriven.without_origin, redriven.remaining) == ({}, [], 0)
    assert (await stage.store.redrive(GRAVES, RedriveOrder(into="orders", most=10, ids=ids))).moved == {}


@every_store
async def test_a_redrive_into_nowhere_is_refused(stage: Stage) -> None:
    await stage.store.change("orders", FRAIL)
    await bury(stage, b"a")
    with pytest.raises(QueueNotFound, match="nowhere"):
        await stage.store.redrive(GRAVES, RedriveOrder(into="nowhere", most=1))
    with pytest.raises(ValueError, match="target_queue"):
        await stage.store.redrive(GRAVES, RedriveOrder(into=GRAVES, most=1))
    assert (await stage.store.counts(GRAVES)).live == 1


@every_store
async def test_deleting_a_queue_says_what_becomes_of_its_dead_letters(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=1))
    await bury(stage, b"1", b"2")
    assert await stage.store.delete("orders") == Remains("orders.dead", 2, is_deleted=False)
    assert await drain(stage, queue="orders.dead") == [b"1", b"2"]
    assert await stage.store.delete("orders.dead") == Remains(None, 0, is_deleted=False)
    assert await stage.store.queues() == []


@every_store
async def test_dead_letters_may_be_deleted_with_their_queue(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=1))
    await bury(stage, b"1", b"2")
    assert await stage.store.delete("orders", with_dead_letters=True) == Remains("orders.dead", 2, is_deleted=True)
    await stage.crash()
    assert await stage.store.queues() == []
    await stage.store.create("orders", QueueSettings())
    assert await stage.store.delete("orders", with_dead_letters=True) == Remains(None, 0, is_deleted=False)


@every_store
async def test_dead_letters_that_others_share_are_not_deleted_with_one_of_them(stage: Stage) -> None:
    await stage.store.create("mail", FRAIL)
    await stage.store.change("orders", FRAIL)
    await bury(stage, b"1")
    with pytest.raises(DeadLettersShared, match="mail"):
        await stage.store.delete("orders", with_dead_letters=True)
    assert await stage.store.queues() == [GRAVES, "mail", "orders"]
    await stage.store.delete("mail")
    assert await stage.store.delete("orders", with_dead_letters=True) == Remains(GRAVES, 1, is_deleted=True)
    assert await stage.store.queues() == []
    with pytest.raises(QueueNotFound):
        await is_empty_handed(stage, queue=GRAVES)
