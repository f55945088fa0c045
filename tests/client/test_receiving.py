"""Receiving and settling, to a server and in process."""

import asyncio
from contextlib import aclosing

import pytest

import penstock
from penstock.client import BadRequest, Batch, Message, StaleReceipt
from tests.client.proxies import lossy_proxy
from tests.client.serving import Server
from tests.waiting import let_others_run

pytestmark = pytest.mark.real_time


async def test_a_batch_is_acked_by_one_bitmap(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send_many([b"%d" % number for number in range(1000)])
        batch = await queue.receive(limit=1000)
        assert len(batch) == 1000
        assert batch.bodies[7] == batch[7].body == b"7"
        assert batch.bodies[-1:] == [batch[-1].body]
        assert [message.id for message in batch[3:5]] == list(batch.ids[3:5])
        assert await batch.ack() == [True] * 1000
        assert await batch.ack() == [False] * 1000
        assert (await queue.describe()).current_message_count == 0


async def test_an_empty_queue_gives_none_or_an_empty_batch(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        assert await queue.receive() is None
        batch = await queue.receive(limit=5)
        assert (len(batch), list(batch), batch.bodies, await batch.ack()) == (0, [], (), [])
        assert await queue.receive(wait_s=0.05) is None


async def test_who_waits_gets_a_message_as_soon_as_it_is_sent(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        async with asyncio.timeout(50), asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(queue.receive(wait_s=60))
            await let_others_run()
            await queue.send("now")
        message = waiting.result()
        assert message is not None
        assert message.text == "now"


async def test_single_acks_travel_together_and_each_has_its_own_answer(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send_many([b"x"] * 300)
        first, second = await queue.receive(limit=200), await queue.receive(limit=100)
        await first[5].ack()
        results = await asyncio.gather(*(message.ack() for message in [*first, *second]), return_exceptions=True)
        stale = [row for row, result in enumerate(results) if result is not None]
        assert stale == [5]
        assert isinstance(results[5], StaleReceipt)
        assert (await queue.describe()).current_message_count == 0


async def test_messages_and_receipts_of_several_leases_are_settled_in_one_call(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send_many([b"x"] * 6)
        batches = [await queue.receive(limit=2) for _ in range(3)]
        mixed: list[Message | str] = [batches[0][0], batches[1][1].receipt, batches[2][0]]
        assert await queue.ack(mixed) == [True, True, True]
        assert await queue.ack(mixed) == [False, False, False]
        assert await queue.extend([batches[0][1], batches[0][0]], visibility_timeout=100) == [True, False]
        assert await queue.release([batches[0][1], batches[1][0].receipt], error="no", delay_s=0) == [True, True]
        again = await queue.receive(limit=10)
        assert sorted(again.ids) == sorted([batches[0][1].id, batches[1][0].id])
        assert {message.last_error for message in again} == {"no"}
        assert {message.delivery_count for message in again} == {2}


@pytest.mark.parametrize("receipt", ["", "x", "1-2", "1-2-3-4", "1-2-ffff", "-1-2-3", "1-" + "f" * 17 + "-0"])
async def test_a_receipt_that_is_none_is_refused(receipt: str) -> None:
    async with penstock.connect("http://127.0.0.1:1") as client:
        with pytest.raises(BadRequest) as caught:
            await client.queue("x").ack([receipt])
        assert caught.value.field == "receipt"


async def test_a_message_is_acked_by_the_queue_it_came_from_only(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        await client.queue(name).send(b"x")
        message = await client.queue(name).receive()
        assert message is not None
        with pytest.raises(BadRequest, match="received from"):
            await client.queue("another").ack(message)


async def test_a_block_acks_its_message_or_releases_it_with_the_error(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name, retry={"min_backoff_s": 0})
        queue = client.queue(name)
        await queue.send("work")
        message = await queue.receive()
        assert message is not None
        with pytest.raises(ValueError, match="broken"):
            async with message:
                raise ValueError("broken")
        message = await queue.receive(wait_s=5)
        assert message is not None
        assert (message.last_error, message.delivery_count) == ("ValueError: broken", 2)
        async with message:
            await message.extend(500)
            assert message.invisible_until.timestamp() - message.sent_at.timestamp() > 400
        assert (await queue.describe()).current_message_count == 0
        with pytest.raises(StaleReceipt):
            await message.release()


async def test_a_worker_that_lost_its_lease_cannot_ack(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send("x")
        message = await queue.receive(visibility_timeout=0.05)
        assert message is not None
        other = await queue.receive(wait_s=60)
        assert other is not None
        with pytest.raises(StaleReceipt):
            await message.ack()
        await other.ack()


@pytest.mark.parametrize("prefetch", [0, 1, 7, 100])
async def test_a_loop_over_messages_sees_each_of_them_once(url: str, name: str, prefetch: int) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send_many([b"%d" % number for number in range(60)])
        seen = []
        async with aclosing(queue.consume(prefetch=prefetch)) as messages:
            async for message in messages:
                async with message:
                    seen.append(int(message.body))
                if len(seen) == 50:
                    break
        assert seen == list(range(50))
        # What was fetched ahead and not looked at is there for others at once.
        view = await queue.describe()
        assert (view.ready, view.in_flight) == (10, 0)


async def test_a_loop_leaves_out_what_it_has_held_for_too_long(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send_many([b"%d" % number for number in range(3)])
        async with aclosing(queue.consume(prefetch=3, visibility_timeout=1.5)) as messages:
            first = await anext(messages)
            await asyncio.sleep(1.6)  # Real time: longer than the lease.
            second = await anext(messages)
        # The others of the lease were not handed out too late. That of all three may have ended before the first was
        # handed out, on a machine that stood still; then it was another one.
        assert second.leased is not first.leased
        assert second.delivery_count > 1


async def test_many_workers_and_many_senders_lose_and_double_nothing(url: str, name: str) -> None:
    total = 3000
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        seen: list[int] = []

        async def send(first: int) -> None:
            for number in range(first, total, 30):
                await queue.send(b"%d" % number)

        async def work() -> None:
            while len(seen) < total:
                batch = await queue.receive(limit=50, wait_s=0.2)
                seen.extend(int(message.body) for message in batch)
                await asyncio.gather(*(message.ack() for message in batch))

        await asyncio.gather(*(send(first) for first in range(30)), *(work() for _ in range(5)))
        assert sorted(seen) == list(range(total))
        assert (await queue.describe()).current_message_count == 0


async def test_a_cancelled_receive_does_not_disturb_the_next(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await queue.receive(wait_s=20)
        await queue.send("x")
        message = await queue.receive(wait_s=60)
        assert isinstance(message, Message)
        assert isinstance(await queue.receive(limit=2), Batch)


@pytest.mark.parametrize(
    "said", [{"limit": 0}, {"limit": 1001}, {"limit": True}, {"wait_s": -1}, {"visibility_timeout": 50_000}]
)
async def test_a_receive_that_cannot_be_right_is_refused(said: dict[str, float]) -> None:
    async with penstock.connect("http://127.0.0.1:1") as client:
        with pytest.raises(BadRequest) as caught:
            await client.queue("x").receive(**said)  # type: ignore[call-overload]
        assert caught.value.field == next(iter(said))


async def test_an_answer_lost_on_its_way_leads_to_no_loss_and_no_doubling(server: Server, name: str) -> None:
    async with lossy_proxy(server.url) as proxy, penstock.connect(proxy.url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        proxy.loses += ["/messages", "/messages"]
        ids = await asyncio.gather(*(queue.send(b"%d" % number) for number in range(50)))
        assert proxy.lost == 2
        proxy.loses += ["/messages"]
        ids += await queue.send_many([b"%d" % number for number in range(50, 100)])
        assert proxy.lost == 3
        batch = await queue.receive(limit=1000)
        assert [(message.id, int(message.body)) for message in batch] == list(zip(ids, range(100), strict=True))
        assert (await queue.describe()).totals.sent in {100, 150, 200, 250}


async def test_an_ack_whose_answer_was_lost_is_done_when_it_is_repeated(server: Server, name: str) -> None:
    async with lossy_proxy(server.url) as proxy, penstock.connect(proxy.url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send_many([b"x"] * 10)
        batch = await queue.receive(limit=10)
        proxy.loses += ["/ack"]
        await asyncio.gather(*(message.ack() for message in batch[:5]))
        proxy.loses += ["/release"]
        await batch[5].release("no", delay_s=100)
        assert proxy.lost == 2
        # One that is stale for another reason is still stale.
        with pytest.raises(StaleReceipt):
            await batch[0].ack()
        view = await queue.describe()
        assert (view.in_flight, view.delayed, view.current_message_count) == (4, 1, 5)


async def test_a_lease_whose_answer_was_lost_is_asked_for_again(server: Server, name: str) -> None:
    async with lossy_proxy(server.url) as proxy, penstock.connect(proxy.url) as client:
        await client.create_queue(name, visibility_timeout=0.3)
        queue = client.queue(name)
        await queue.send("x")
        proxy.loses += ["/lease"]
        message = await queue.receive(wait_s=60)
        assert message is not None
        assert (message.text, message.delivery_count) == ("x", 2)
