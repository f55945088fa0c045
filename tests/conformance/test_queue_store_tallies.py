"""What every store counts for metrics: what happens to messages by itself, and what operators do."""

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.events import Tally
from penstock.core.queue.message import Drafts
from penstock.store.interface import EscalationOrder, RedriveOrder
from tests.conformance.stores import Stage, every_store, lease, send


def tally(stage: Stage, queue: str = "orders") -> Tally:
    return stage.store.tally(queue) or Tally()


@every_store
async def test_leases_that_lapse_and_messages_that_are_buried_and_redriven_are_counted(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=2, lease_ms=1_000))
    await send(stage, b"1", b"2", b"3")
    await lease(stage, 3)
    await stage.advance(1_001)
    await stage.store.tidy()
    assert tally(stage) == Tally(lapsed=3)
    await lease(stage, 2)
    await stage.advance(1_001)
    await stage.store.tidy()
    assert tally(stage) == Tally(lapsed=5, buried=2)
    await stage.store.redrive("orders.dead", RedriveOrder(most=10))
    assert tally(stage, "orders.dead") == Tally(redriven=2)


@every_store
async def test_what_expires_is_purged_escalated_or_promoted_is_counted(stage: Stage) -> None:
    aging_ms = (0, 1_000, 1_000, 0, 0)
    await stage.store.change("orders", QueueSettings(retention_ms=60_000, aging_ms=aging_ms))
    await stage.store.send("orders", Drafts(bodies=[b"1", b"2"], tiers=bytes([1, 2])))
    (third,) = await stage.store.send("orders", Drafts(bodies=[b"3"], tiers=bytes([3])))
    await stage.store.escalate("orders", [third], EscalationOrder(tier=Tier.CRITICAL, actor="ada", reason=""))
    await stage.advance(1_001)
    await stage.store.tidy()
    assert tally(stage) == Tally(escalated=1, promoted=2)
    await stage.store.purge("orders")
    assert tally(stage) == Tally(escalated=1, promoted=2, purged=3)
    await send(stage, b"4")
    await stage.advance(60_001)
    await stage.store.tidy()
    found = tally(stage)
    assert (found.expired, found.purged) == (1, 3)


@every_store
async def test_the_oldest_message_in_flight_is_known(stage: Stage) -> None:
    assert (await stage.store.counts("orders")).leased_sent_at_ms is None
    sent_at_ms = stage.now_ms()
    await send(stage, b"1")
    await lease(stage, 1)
    await stage.advance(100)
    await send(stage, b"2")
    await lease(stage, 1)
    found = (await stage.store.counts("orders")).leased_sent_at_ms
    assert found is not None
    assert sent_at_ms <= found < sent_at_ms + 100
