"""What every store promises when many use it at once."""

import asyncio
from collections import Counter

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts, Sender
from penstock.store.interface import Outcome, Release
from tests.conformance.stores import DONE, Stage, bodies, drain, every_store, lease, send

SENDERS, CONSUMERS, BATCHES = 6, 5, 12


async def send_batches(stage: Stage, name: int) -> set[bytes]:
    sent: set[bytes] = set()
    for number in range(BATCHES):
        batch = [b"%d/%d/%d" % (name, number, row) for row in range(1 + (name + number) % 7)]
        tiers = bytes((name + row) % 5 for row in range(len(batch)))
        await stage.store.send("orders", Drafts(bodies=batch, tiers=tiers), sender=Sender(name, 0, number))
        sent.update(batch)
    return sent


class Consumers:
    """Workers of all kinds: quick ones, ones that fail, ones that forget what they hold."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.acked: Counter[bytes] = Counter()
        self.is_over = False

    async def work(self, name: int) -> None:
        turn = name
        while not self.is_over:
            turn += 1
            held = await self.stage.store.lease("orders", want=1 + turn % 9, lease_ms=500)
            if held is None:
                await self.stage.advance(20)
            elif turn % 5 == 1:
                await self.stage.store.release("orders", held.receipts(), Release(delay_ms=turn % 30, error="no"))
            elif turn % 5 != 3:
                outcomes = await self.stage.store.ack("orders", held.receipts())
                self.count(bodies(held), outcomes)

    def count(self, found: list[bytes], outcomes: list[Outcome]) -> None:
        self.acked.update(body for body, outcome in zip(found, outcomes, strict=True) if outcome is DONE)


async def run_crowd(stage: Stage) -> tuple[set[bytes], Counter[bytes]]:
    """Let senders send and consumers work until the queue is empty; return what was sent and what was acked."""
    consumers = Consumers(stage)
    async with asyncio.TaskGroup() as tasks:
        for name in range(CONSUMERS):
            tasks.create_task(consumers.work(name))
        senders = [tasks.create_task(send_batches(stage, name)) for name in range(SENDERS)]
        sent = {body for sender in senders for body in await sender}
        while (await stage.store.counts("orders")).live:
            await stage.store.tidy()
            await stage.advance(20)
        consumers.is_over = True
    return sent, consumers.acked


@every_store
async def test_many_senders_and_consumers_settle_every_message_once(stage: Stage) -> None:
    await stage.store.change("orders", QueueSettings(deliveries_max=0))
    sent, acked = await run_crowd(stage)
    assert acked == Counter(sent)
    await stage.crash()
    assert (await stage.store.counts("orders")).live == 0


@every_store
async def test_the_books_balance_between_acked_and_buried(stage: Stage) -> None:
    await stage.store.create("graves", QueueSettings(deliveries_max=0))
    await stage.store.change("orders", QueueSettings(deliveries_max=2, dead_letters="graves"))
    sent, acked = await run_crowd(stage)
    await stage.crash()
    assert (await stage.store.counts("orders")).live == 0
    buried = Counter(await drain(stage, queue="graves"))
    assert buried, "some fail twice"
    assert acked + buried == Counter(sent)


@every_store
async def test_no_two_workers_hold_one_message(stage: Stage) -> None:
    await send(stage, *[b"%d" % number for number in range(100)])
    async with asyncio.TaskGroup() as tasks:
        leases = [tasks.create_task(lease(stage, 10)) for _ in range(10)]
    held = [body for task in leases for body in bodies(task.result())]
    assert sorted(held) == sorted(b"%d" % number for number in range(100))


@every_store
async def test_of_many_who_ack_one_receipt_one_is_done(stage: Stage) -> None:
    await send(stage, b"a")
    held = await lease(stage)
    async with asyncio.TaskGroup() as tasks:
        acks = [tasks.create_task(stage.store.ack("orders", held.receipts())) for _ in range(10)]
    assert sum(task.result() == [DONE] for task in acks) == 1


@every_store
async def test_a_sender_may_race_itself(stage: Stage) -> None:
    drafts = Drafts(bodies=[b"a", b"b"])
    async with asyncio.TaskGroup() as tasks:
        sends = [tasks.create_task(stage.store.send("orders", drafts, sender=Sender(1, 0, 0))) for _ in range(10)]
    assert len({tuple(task.result()) for task in sends}) == 1
    assert await drain(stage) == [b"a", b"b"]


@every_store
async def test_a_hundred_queues_share_a_store(stage: Stage) -> None:
    async def use(queue: str) -> None:
        await stage.store.create(queue, QueueSettings())
        await send(stage, queue.encode(), b"x", queue=queue)
        assert await drain(stage, queue=queue) == [queue.encode(), b"x"]

    async with asyncio.TaskGroup() as tasks:
        for number in range(100):
            tasks.create_task(use(f"queue-{number}"))
