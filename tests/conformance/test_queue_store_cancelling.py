"""What every store promises to those who take back a message before it is due."""

import pytest

from penstock.contract.messages import MessageOutcome
from penstock.contract.queue_settings import DAY_MS, History, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.errors import QueueNotFound
from penstock.store.interface import RedriveOrder, Release
from tests.conformance.stores import Stage, drain, every_store, is_empty_handed, lease, send
from tests.conformance.test_queue_store_history import told


async def schedule(stage: Stage, *bodies: bytes, queue: str = "orders", groups: list[bytes] | None = None) -> list[str]:
    due_at_ms = [stage.now_ms() + DAY_MS] * len(bodies)
    return list(await stage.store.send(queue, Drafts(bodies=list(bodies), visible_at_ms=due_at_ms, groups=groups)))


@every_store
async def test_a_cancelled_message_is_never_delivered_also_after_a_crash(stage: Stage) -> None:
    first, second = await schedule(stage, b"1", b"2")
    assert await stage.store.cancel("orders", first)
    await stage.crash()
    assert not await stage.store.cancel("orders", first)
    assert await stage.store.look("orders", first) is None
    await stage.advance(DAY_MS)
    assert await drain(stage, want=1) == [b"2"]
    assert (await stage.store.counts("orders")).live == 0
    assert not await stage.store.cancel("orders", second)


@every_store
async def test_what_is_due_or_leased_or_unknown_cannot_be_cancelled(stage: Stage) -> None:
    ready, leased = await send(stage, b"1", b"2")
    (soon,) = await schedule(stage, b"3")
    await stage.advance(DAY_MS)
    held = await lease(stage, 1)
    assert [await stage.store.cancel("orders", each) for each in (ready, leased, soon)] == [False] * 3
    await stage.store.ack("orders", held.receipts())
    assert sorted(await drain(stage, want=1)) == [b"2", b"3"]
    assert [await stage.store.cancel("orders", each) for each in (ready, "1-zz", "nonsense")] == [False] * 3
    with pytest.raises(QueueNotFound):
        await stage.store.cancel("nowhere", ready)


@every_store
async def test_a_message_that_rests_after_a_failure_can_be_cancelled(stage: Stage) -> None:
    (failed,) = await send(stage, b"1")
    held = await lease(stage, 1)
    await stage.store.release("orders", held.receipts(), Release(delay_ms=DAY_MS, error="no such shop"))
    assert await stage.store.cancel("orders", failed)
    await stage.advance(DAY_MS)
    assert await is_empty_handed(stage)


@every_store
async def test_a_cancelled_message_lets_those_behind_it_in_its_group_go(stage: Stage) -> None:
    await stage.store.create("mail", QueueSettings(is_fifo=True))
    (first,) = await schedule(stage, b"1", queue="mail", groups=[b"anna"])
    await stage.store.send("mail", Drafts(bodies=[b"2"], groups=[b"anna"]))
    assert await is_empty_handed(stage, queue="mail")
    assert await stage.store.cancel("mail", first)
    assert await drain(stage, want=1, queue="mail") == [b"2"]


@every_store
async def test_a_cancelled_message_frees_its_room_and_its_id_and_leaves_a_row_in_the_history(stage: Stage) -> None:
    await stage.store.create("mail", QueueSettings(size_max=1, history=History.FULL))
    drafts = Drafts(bodies=[b"1"], visible_at_ms=[stage.now_ms() + DAY_MS], dedup_ids=[b"once"])
    (first,) = await stage.store.send("mail", drafts)
    assert await stage.store.cancel("mail", first)
    (second,) = await stage.store.send("mail", drafts)
    assert second != first
    assert [row.ending for row in await told(stage, "mail")] == [MessageOutcome.CANCELLED]


@every_store
async def test_a_dead_letter_that_came_back_is_cancelled_by_the_id_it_was_sent_with(stage: Stage) -> None:
    await stage.store.create("mail", QueueSettings(deliveries_max=1, dead_letters="graves"))
    (sent,) = await send(stage, b"1", queue="mail")
    held = await lease(stage, 1, queue="mail")
    await stage.store.release("mail", held.receipts(), Release(error="no such mail"))
    await stage.store.tidy()
    await stage.store.create("repair", QueueSettings(deliveries_max=3))
    await stage.store.redrive("graves", RedriveOrder(into="repair", most=1))
    held = await lease(stage, 1, queue="repair")
    await stage.store.release("repair", held.receipts(), Release(delay_ms=DAY_MS))
    assert not await stage.store.cancel("mail", sent)
    assert await stage.store.cancel("repair", sent)
    assert (await stage.store.counts("repair")).live == 0
