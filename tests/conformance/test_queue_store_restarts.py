"""What every store promises across a restart, in good order or without a word."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import DedupScope, QueueSettings
from penstock.core.queue.message import Drafts, Sender
from penstock.store.errors import QueueExists, QueueNotFound
from penstock.store.interface import EscalationOrder, QueueStore, RedriveOrder, Release
from tests.conformance.stores import (
    DONE,
    STALE,
    Stage,
    begin,
    bodies,
    drain,
    every_store,
    is_empty_handed,
    lease,
    send,
    until,
)

Restart = Callable[[], Awaitable[None]]


def restarts(stage: Stage) -> list[Restart]:
    return [stage.reopen, stage.crash]


@every_store
async def test_every_answered_send_is_there_after_a_restart(stage: Stage) -> None:
    sent: list[bytes] = []
    for restart in restarts(stage) * 2:
        for _ in range(5):
            body = b"%d" % len(sent)
            await send(stage, body)
            sent.append(body)
        await restart()
    assert await drain(stage) == sent


@every_store
async def test_an_acked_message_does_not_come_back_after_a_restart(stage: Stage) -> None:
    await send(stage, *[b"%d" % number for number in range(10)])
    for restart in restarts(stage):
        held = await lease(stage, 3)
        assert await stage.store.ack("orders", held.receipts()) == [DONE] * 3
        await restart()
        assert await stage.store.ack("orders", held.receipts()) == [STALE] * 3
    assert await drain(stage) == [b"6", b"7", b"8", b"9"]


@every_store
async def test_a_stale_answer_is_as_durable_as_the_ack_before_it(stage: Stage) -> None:
    """The second worker is told that the message is settled, so it must be, whatever happens next."""
    await send(stage, b"a")
    held = await lease(stage)
    async with asyncio.TaskGroup() as tasks:
        first = await begin(tasks, stage.store.ack("orders", held.receipts()))
        assert await stage.store.ack("orders", held.receipts()) == [STALE]
        await stage.crash()
    assert first.result() == [DONE]
    assert (await stage.store.counts("orders")).live == 0


@every_store
async def test_a_repeated_send_is_answered_only_when_the_first_is_durable(stage: Stage) -> None:
    drafts = Drafts(bodies=[b"a"], dedup_ids=[b"1"])
    async with asyncio.TaskGroup() as tasks:
        first = await begin(tasks, stage.store.send("orders", drafts))
        ids = await stage.store.send("orders", drafts)
        await stage.crash()
    assert first.result() == ids
    assert list((await lease(stage)).ids) == ids


@every_store
async def test_an_answer_that_wrote_nothing_waits_for_what_it_is_based_on(stage: Stage) -> None:
    verbs: list[Callable[[QueueStore, str], Coroutine[Any, Any, object]]] = [
        lambda store, queue: store.create(queue, QueueSettings()),
        lambda store, queue: store.change(queue, QueueSettings()),
        lambda store, queue: store.send(queue, Drafts(bodies=[])),
        lambda store, queue: store.lease(queue, want=1),
        lambda store, queue: store.ack(queue, []),
        lambda store, queue: store.ack_and_lease(queue, [], want=1),
        lambda store, queue: store.purge(queue),
        lambda store, queue: store.counts(queue),
        lambda store, queue: store.describe(queue),
        lambda store, queue: store.queues(prefix=queue),
        lambda store, queue: store.peek(queue, most=1),
        lambda store, queue: store.look(queue, "1-2"),
        lambda store, queue: store.explain(queue, "1-2"),
        lambda store, queue: store.receipts(queue, []),
        lambda store, queue: store.escalate(queue, [], EscalationOrder(tier=0, actor="", reason="")),
        lambda store, queue: store.audit(queue, most=1),
        lambda store, queue: store.redrive(queue, RedriveOrder(most=1)),
    ]
    for number, verb in enumerate(verbs):
        queue = f"queue-{number}"
        async with asyncio.TaskGroup() as tasks:
            await begin(tasks, stage.store.create(queue, QueueSettings()))
            await verb(stage.store, queue)
            await stage.crash()
        assert (await stage.store.counts(queue)).live == 0


@every_store
async def test_what_is_seen_is_durable(stage: Stage) -> None:
    async with asyncio.TaskGroup() as tasks:
        sent = await begin(tasks, send(stage, b"a"))
        # A store that has several connections may look before it sends.
        while not (messages := (await stage.store.peek("orders", most=1)).messages):
            pass
        await stage.crash()
    (seen,) = messages
    assert sent.result() == [seen.id]
    again = await stage.store.look("orders", seen.id)
    assert again is not None
    assert bytes(again.body) == bytes(seen.body) == b"a"


@every_store
async def test_acks_and_the_lease_behind_them_outlive_a_crash_together(stage: Stage) -> None:
    await send(stage, b"a", b"b")
    held = await lease(stage, 1)
    outcomes, delivery = await stage.store.ack_and_lease("orders", held.receipts(), want=1)
    await stage.crash()
    assert delivery is not None
    assert (outcomes, bodies(delivery)) == ([DONE], [b"b"])
    assert await is_empty_handed(stage)
    assert await stage.store.ack("orders", [*held.receipts(), *delivery.receipts()]) == [STALE, DONE]


@every_store
async def test_what_a_verb_answered_outlives_a_crash_right_after_it(stage: Stage) -> None:
    await stage.store.create("mail", QueueSettings())
    await stage.crash()
    await send(stage, b"a", b"b", b"c", queue="mail")
    await stage.crash()
    held = await lease(stage, queue="mail")
    await stage.crash()
    assert await is_empty_handed(stage, queue="mail")
    first, second, third = held.receipts()
    assert await stage.store.ack("mail", [first]) == [DONE]
    await stage.crash()
    assert await stage.store.release("mail", [second], Release(delay_ms=0)) == [DONE]
    await stage.crash()
    assert await stage.store.extend("mail", [third], lease_ms=90_000) == [DONE]
    await stage.crash()
    await stage.advance(60_000)
    assert bodies(await lease(stage, queue="mail")) == [b"b"]
    assert await stage.store.purge("mail") == 2
    await stage.crash()
    assert (await stage.store.counts("mail")).live == 0
    await stage.store.change("mail", QueueSettings(lease_ms=1))
    await stage.crash()
    await stage.store.create("mail", QueueSettings(lease_ms=1))
    await stage.store.delete("mail")
    await stage.crash()
    with pytest.raises(QueueNotFound):
        await stage.store.counts("mail")


@every_store
async def test_receive_counts_do_not_shrink_in_a_restart(stage: Stage) -> None:
    await stage.store.send("orders", Drafts(bodies=[b"run", b"row"], groups=[b"", b"g"]))
    for count, restart in enumerate(restarts(stage) * 2, start=1):
        held = await lease(stage, lease_ms=1_000)
        assert list(held.deliveries) == [count, count]
        await restart()
        await stage.advance(1_000)
    await stage.store.tidy()
    assert list((await lease(stage)).deliveries) == [5, 5]


@every_store
async def test_a_lease_goes_on_after_a_restart_and_its_receipts_stay_good(stage: Stage) -> None:
    for restart in restarts(stage):
        await send(stage, b"a", b"b")
        held = await lease(stage)
        assert await stage.store.ack("orders", held.receipts()[:1]) == [DONE]
        await restart()
        assert await is_empty_handed(stage)
        assert (await stage.store.counts("orders")).leased == 1
        assert await stage.store.ack("orders", held.receipts()) == [STALE, DONE]


@every_store
async def test_leases_start_again_after_a_restart(stage: Stage) -> None:
    """They could not be extended while the store was down."""
    for restart in restarts(stage):
        await send(stage, b"a")
        held = await lease(stage, lease_ms=10_000)
        await stage.advance(9_000)
        await restart()
        await stage.advance(9_000)
        assert await is_empty_handed(stage)
        await stage.advance(1_000)
        assert await stage.store.ack("orders", held.receipts()) == [STALE]
        assert await drain(stage) == [b"a"]


@every_store
async def test_an_extended_lease_is_as_long_after_a_restart(stage: Stage) -> None:
    for restart in restarts(stage):
        await send(stage, b"a", b"b")
        held = await lease(stage, lease_ms=1_000)
        await stage.store.extend("orders", held.receipts()[:1], lease_ms=20_000)
        await restart()
        await stage.advance(15_000)
        assert await drain(stage) == [b"b"]
        assert await stage.store.ack("orders", held.receipts()) == [DONE, STALE]


@every_store
async def test_a_delay_ends_when_it_would_have_ended(stage: Stage) -> None:
    at_ms = stage.now_ms() + 60_000
    await stage.store.send("orders", Drafts(bodies=[b"a"], visible_at_ms=[at_ms]))
    await send(stage, b"released")
    await stage.store.release("orders", (await lease(stage)).receipts(), Release(delay_ms=90_000))
    for restart in restarts(stage):
        await stage.advance(10_000)
        await restart()
    await until(stage, at_ms - 1)
    assert await is_empty_handed(stage)
    await until(stage, at_ms)
    assert await drain(stage) == [b"a"]
    await stage.advance(35_000)
    assert await drain(stage) == [b"released"]


@every_store
async def test_changed_settings_outlive_every_restart(stage: Stage) -> None:
    changed = QueueSettings(lease_ms=1_234, is_paused=True, dead_letters="graves", weights=(5, 4, 3, 2, 1))
    await stage.store.change("orders", changed)
    for restart in restarts(stage):
        await restart()
        await stage.store.create("orders", changed)
        with pytest.raises(QueueExists):
            await stage.store.create("orders", QueueSettings())


@every_store
async def test_a_deleted_queue_stays_deleted(stage: Stage) -> None:
    ids = await send(stage, b"a")
    await stage.store.delete("orders")
    for restart in restarts(stage):
        await restart()
        with pytest.raises(QueueNotFound):
            await stage.store.counts("orders")
    await stage.store.create("orders", QueueSettings())
    assert await send(stage, b"a") != ids


@every_store
async def test_a_purged_queue_stays_purged(stage: Stage) -> None:
    await send(stage, b"a", b"b")
    held = await lease(stage, 1)
    assert await stage.store.purge("orders") == 2
    await send(stage, b"after")
    await stage.crash()
    assert await stage.store.ack("orders", held.receipts()) == [STALE]
    assert await drain(stage) == [b"after"]


@every_store
async def test_repeats_are_known_after_a_restart(stage: Stage) -> None:
    await stage.store.create("live", QueueSettings(dedup_scope=DedupScope.LIVE))
    drafts = Drafts(bodies=[b"a"], dedup_ids=[b"1"])
    sender = Sender(7, 3, 9)
    ids = [await stage.store.send(queue, drafts) for queue in ("orders", "live")]
    numbered = await stage.store.send("orders", Drafts(bodies=[b"b", b"c"]), sender=sender)
    for restart in restarts(stage):
        await restart()
        assert [await stage.store.send(queue, drafts) for queue in ("orders", "live")] == ids
        assert await stage.store.send("orders", Drafts(bodies=[b"b", b"c"]), sender=sender) == numbered
    assert await drain(stage) == [b"a", b"b", b"c"]
    assert await drain(stage, queue="live") == [b"a"]


@every_store
async def test_counts_are_the_same_after_a_restart(stage: Stage) -> None:
    tiers = bytes(number % 5 for number in range(50))
    await stage.store.send("orders", Drafts(bodies=[b"x"] * 50, tiers=tiers))
    await stage.store.send("orders", Drafts(bodies=[b"x"], visible_at_ms=[stage.now_ms() + 60_000]))
    held = await lease(stage, 10)
    await stage.store.ack("orders", held.receipts()[:3])
    await stage.store.release("orders", held.receipts()[3:5], Release(delay_ms=60_000))
    before = await stage.store.counts("orders")
    assert (before.leased, before.delayed, before.live) == (5, 3, 48)
    for restart in restarts(stage):
        await restart()
        assert await stage.store.counts("orders") == before


@every_store
async def test_shares_of_tiers_go_on_across_restarts(stage: Stage) -> None:
    for tier in Tier:
        await stage.store.send("orders", Drafts(bodies=[b"x"] * 40, tiers=bytes([tier]) * 40))
    served = b""
    for _ in range(6):
        served += (await lease(stage, 10)).tiers
        await stage.crash()
    served += (await lease(stage, 2)).tiers
    assert [abs(served.count(tier) - share) <= 1 for tier, share in zip(Tier, (32, 16, 8, 4, 2), strict=True)]
    assert served.count(Tier.BACKGROUND) >= 1


@every_store
async def test_a_long_life_is_remembered_over_many_segments(stage: Stage) -> None:
    body = b"x" * 10_000
    for number in range(100):
        await send(stage, b"%d " % number + body)
        if number % 2:
            held = await lease(stage, 1)
            await stage.store.ack("orders", held.receipts())
    await stage.crash()
    found = await drain(stage, want=7)
    assert [int(part.split()[0]) for part in found] == list(range(50, 100))
    assert all(part.endswith(body) for part in found)


@every_store
async def test_what_was_being_sent_in_a_crash_is_there_wholly_or_not_at_all(stage: Stage) -> None:
    answered: list[bytes] = []

    async def keep_sending(name: int) -> None:
        for number in range(1_000):
            batch = [b"%d/%d/%d" % (name, number, row) for row in range(3)]
            await send(stage, *batch)
            answered.extend(batch)

    async with asyncio.TaskGroup() as tasks:
        senders = [tasks.create_task(keep_sending(name)) for name in range(4)]
        while len(answered) < 60:
            await stage.advance(1)
        for sender in senders:
            sender.cancel()
        promised = list(answered)
        await stage.crash()
    found = await drain(stage)
    assert len(found) == len(set(found))
    assert set(promised) <= set(found)
    batches = {body.rsplit(b"/", 1)[0] for body in found}
    assert len(found) == 3 * len(batches)


@every_store
async def test_bodies_of_a_moved_lease_are_right_after_restart(stage: Stage) -> None:
    """Numbers lead to the right bodies also where sends, releases and lapses have mixed them."""
    for number in range(20):
        tiers = bytes([number % 3, 2, (number + 1) % 3])
        rows = [b"%d-%d-%d" % (number, row, tier) for row, tier in enumerate(tiers)]
        await stage.store.send("orders", Drafts(bodies=rows, tiers=tiers))
    held = await lease(stage, 17)
    await stage.store.release("orders", held.receipts()[::3], Release(delay_ms=0))
    expected = sorted(b"%d" % tier for tier in held.tiers)
    assert sorted(body.rsplit(b"-", 1)[1] for body in bodies(held)) == expected
    await stage.crash()
    await stage.advance(30_000)
    again = await lease(stage, 60)
    assert [int(body.rsplit(b"-", 1)[1]) for body in bodies(again)] == list(again.tiers)
    assert len(set(bodies(again))) == 60
    first = dict(zip(held.ids, bodies(held), strict=True))
    second = dict(zip(again.ids, bodies(again), strict=True))
    assert first.items() <= second.items()
