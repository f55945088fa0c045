"""Sending, one by one and many at once, to a server and in process."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import pytest

import penstock
from penstock.client import BadRequest, Draft, QueueFull, QueueNotFound, TooLarge
from penstock.client.batching import MESSAGE_BYTES
from penstock.client.outbox import BatchingOutbox
from penstock.client.queue import Queue
from tests.waiting import let_others_run

pytestmark = pytest.mark.real_time

# Type checkers know the names in upper case alone.
HIGH: Any = "high"
WRONG: Any = "WRONG"


async def drain(queue: Queue, limit: int = 1000) -> list[bytes]:
    """Receive and ack everything there is."""
    found: list[bytes] = []
    while batch := await queue.receive(limit=limit):
        found += batch.bodies
        assert all(await batch.ack())
    return found


async def test_bytes_text_and_json_arrive_as_they_were_sent(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        for data in (
            b"\x00\xff\x80 not text",
            "größer als 世界 🚰",
            {"a": [1, None, "ü"]},
            "",
            b"",
            5,
            "x" * 1_048_576,
        ):
            sent = await queue.send(data)
            message = await queue.receive()
            assert message is not None
            assert message.id == sent
            if isinstance(data, bytes):
                assert message.body == data
            elif isinstance(data, str):
                assert message.text == data
                assert message.attributes == {}
            else:
                assert message.json() == data
                assert message.attributes == {"content_type": "application/json"}
            await message.ack()


async def test_everything_said_about_a_message_comes_back_with_it(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        before = time.time()
        sent = await queue.send(b"x", priority=HIGH, group="größe", attributes={"n": 1, "ok": True}, dedup_id="d")
        assert await queue.send(b"x", dedup_id="d") == sent
        message = await queue.receive(visibility_timeout=60)
        assert message is not None
        assert (message.id, message.priority, message.tier, message.group) == (sent, "HIGH", 1, "größe")
        assert message.attributes == {"n": 1, "ok": True}
        assert (message.delivery_count, message.queue, message.last_error) == (1, name, None)
        assert abs(message.sent_at.timestamp() - before) < 30
        assert 50 < message.invisible_until.timestamp() - before < 120
        assert sent in repr(message)


async def test_a_delayed_message_is_not_there_before_its_time(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send("later", delay_s=3600)
        await queue.send("much later", scheduled_at=time.time() + 7200)
        assert await queue.receive() is None
        before = time.time()
        await queue.send("soon", delay_s=0.05)
        message = await queue.receive(wait_s=60)
        # Its time is told in whole milliseconds.
        assert time.time() - before > 0.048
        assert message is not None
        assert message.text == "soon"
        assert (await queue.describe()).delayed == 2


async def test_calls_at_the_same_time_travel_together_and_keep_their_order(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        ids = await asyncio.gather(*(queue.send(b"%d" % number) for number in range(900)))
        assert len(set(ids)) == 900
        batch = await queue.receive(limit=1000)
        assert [message.id for message in batch] == ids
        assert [int(body) for body in batch.bodies] == list(range(900))


async def test_messages_of_a_group_keep_their_order_whatever_is_on_its_way(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name, fifo=True)
        queue = client.queue(name)
        sends = (queue.send(b"%d" % number, group=f"g{number % 3}") for number in range(3000))
        await asyncio.gather(*sends)
        await queue.send_many([Draft(data=b"%d" % number, group=f"g{number % 3}") for number in range(3000, 6000)])
        found = [int(body) for body in await drain(queue)]
        for group in range(3):
            assert [number for number in found if number % 3 == group] == list(range(group, 6000, 3))


async def test_each_call_gets_its_own_error(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name, max_message_bytes=100)
        queue = client.queue(name)
        sends = [queue.send(b"x" * (101 if number in {3, 50} else 10)) for number in range(60)]
        results = await asyncio.gather(*sends, queue.send(b"x", priority=WRONG), return_exceptions=True)
        wrong = [number for number, result in enumerate(results) if isinstance(result, Exception)]
        assert wrong == [3, 50, 60]
        assert isinstance(results[3], TooLarge)
        assert results[3] is not results[50]
        assert isinstance(results[60], BadRequest)
        assert results[60].field == "priority"
        assert len(await drain(queue)) == 58


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"delay_s": -1}, "delay_s"),
        ({"delay_s": float("nan")}, "delay_s"),
        ({"delay_s": 1, "scheduled_at": 1}, "scheduled_at"),
        ({"scheduled_at": "tomorrow"}, "scheduled_at"),
        ({"scheduled_at": "2030-01-01T00:00:00"}, "scheduled_at"),
        ({"group": ""}, "group"),
        ({"group": "x" * 129}, "group"),
        ({"dedup_id": 5}, "dedup_id"),
        ({"attributes": {"a": {"nested": 1}}}, "attributes"),
        ({"attributes": {"a": "x" * 70_000}}, "attributes"),
        ({"attributes": {str(number): 1 for number in range(101)}}, "attributes"),
        ({"max_deliveries": 0}, "max_deliveries"),
        ({"priority": 5}, "priority"),
        ({"priority": True}, "priority"),
        ({"data": None}, "data"),
        ({"data": object()}, "data"),
        ({"data": "\ud800"}, "data"),
        ({"data": b"x" * 1_048_577}, "data"),
    ],
)
async def test_what_cannot_be_right_is_refused_before_it_is_sent(said: dict[str, object], field: str) -> None:
    async with penstock.connect("http://127.0.0.1:1") as client:
        with pytest.raises((BadRequest, TooLarge)) as caught:
            await client.queue("x").send(**{"data": "x", **said})  # type: ignore[arg-type]
        assert caught.value.field == field
        with pytest.raises((BadRequest, TooLarge)) as caught:
            await client.queue("x").send_many(["fine", Draft(**{"data": "x", **said})])  # type: ignore[arg-type]
        assert caught.value.field == f"messages[1].{field}"


async def test_any_number_of_messages_is_sent_with_ids_in_order(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        items = [b"%d" % number for number in range(3500)]
        ids = await queue.send_many(items)
        assert len(ids) == len(set(ids)) == 3500
        assert [ids[0], ids[-1], *ids[1500:1503]] == [*list(ids)[:1], *list(ids)[-1:], *list(ids)[1500:1503]]
        assert sorted(map(int, await drain(queue))) == list(range(3500))
        assert len(await queue.send_many([])) == 0


@pytest.mark.parametrize("items", ["abc", b"abc", {"data": "abc"}])
async def test_one_message_is_not_taken_for_a_list_of_its_parts(name: str, items: Iterable[object]) -> None:
    async with penstock.connect("memory:") as client:
        await client.create_queue(name)
        with pytest.raises(BadRequest, match="give a list, or call send"):
            await client.queue(name).send_many(items)
        assert (await client.queue(name).describe()).current_message_count == 0


async def test_large_messages_are_cut_into_requests_the_server_takes(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        bodies = [bytes([number]) * 1_048_576 for number in range(20)]
        assert len(await queue.send_many(bodies)) == 20
        await asyncio.gather(*(queue.send(body) for body in bodies))
        found = await drain(queue, limit=10)
        assert sorted(found) == sorted(bodies * 2)


async def test_a_queue_that_is_not_there_is_an_error_for_everyone_who_sends_to_it(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        results = await asyncio.gather(*(client.queue(name).send(b"x") for _ in range(5)), return_exceptions=True)
        assert [type(result) for result in results] == [QueueNotFound] * 5
        with pytest.raises(QueueNotFound):
            await client.queue(name).send_many([b"x"])
        with pytest.raises(QueueNotFound):
            await client.queue(name).receive()


@pytest.mark.parametrize("odd", ["a b", "a/b", "../a", "ключ", "a?b=c", "a%2Fb", "q_ffff", ".", "x" * 90])
async def test_an_odd_name_is_refused_or_unknown_and_never_another_queue(url: str, odd: str) -> None:
    async with penstock.connect(url) as client:
        with pytest.raises((BadRequest, QueueNotFound)):
            await client.create_queue(odd)
        with pytest.raises((BadRequest, QueueNotFound, penstock.PenstockError)):
            await client.queue(odd).send(b"x")


async def test_a_full_queue_is_waited_for_until_there_is_room(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name, queue_size=50)
        queue = client.queue(name)
        sending = asyncio.gather(*(queue.send(b"%d" % number) for number in range(200)))
        found: list[bytes] = []
        while len(found) < 200:
            batch = await queue.receive(limit=20, wait_s=5)
            found += batch.bodies
            await batch.ack()
        assert len(set(await sending)) == 200
        assert sorted(map(int, found)) == list(range(200))


async def test_who_will_not_wait_for_a_full_queue_is_told_so_at_once(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name, queue_size=50)
        queue = client.queue(name)
        results = await asyncio.gather(*(queue.send(b"x", timeout_s=0) for _ in range(100)), return_exceptions=True)
        full = [result for result in results if isinstance(result, QueueFull)]
        assert 50 <= len(full) <= 60
        assert full[0].retry_after_s is not None
        assert (full[0].code, full[0].status) == ("queue_full", 429)
        with pytest.raises(QueueFull) as caught:
            await queue.send_many([b"y"] * 100, timeout_s=0)
        assert len(caught.value.sent) == 100
        sent = [each for each in caught.value.sent if each is not None]
        assert len(await drain(queue)) == 100 - len(full) + len(sent)


async def test_what_is_urgent_does_not_stand_behind_what_is_not_when_a_queue_is_full(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name, queue_size=1000, tiers={"reserve_percent": [0, 2, 5, 10, 20]})
        queue = client.queue(name)
        low = [asyncio.ensure_future(queue.send(b"low", priority=4)) for _ in range(1000)]  # noqa: TID251
        await asyncio.wait(low, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        done, waiting = await asyncio.wait(low, timeout=0.5)
        assert done
        assert waiting
        # There is room kept for what is urgent, and it is used while the others wait.
        await queue.send(b"urgent", priority=0, timeout_s=60)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


async def test_memory_is_bounded_and_callers_wait_for_their_turn(url: str, name: str) -> None:
    size = 100_000
    async with penstock.connect(url, pending_bytes_max=3 * (size + MESSAGE_BYTES)) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        assert isinstance(queue._outbox, BatchingOutbox)
        room = queue._outbox._memory
        least = room.free_bytes

        async def send() -> None:
            nonlocal least
            await queue.send(bytes(size))
            least = min(least, room.free_bytes)

        await asyncio.gather(*(send() for _ in range(40)))
        assert least >= 0
        assert room.free_bytes == 3 * (size + MESSAGE_BYTES)
        # Larger than all the room there is: it goes alone.
        await queue.send(bytes(size * 5))
        assert len(await drain(queue)) == 41


async def test_a_cancelled_call_takes_its_message_back_if_it_has_not_left(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        tasks = [asyncio.ensure_future(queue.send(b"%d" % number)) for number in range(10)]  # noqa: TID251
        await let_others_run()
        for task in tasks[::2]:
            task.cancel()
        await asyncio.wait(tasks)
        assert [task.cancelled() for task in tasks] == [True, False] * 5
        assert sorted(await drain(queue)) == [b"1", b"3", b"5", b"7", b"9"]
        # The lane goes on.
        await queue.send(b"more")
        assert await drain(queue) == [b"more"]


async def test_a_closed_client_has_sent_what_it_was_given_and_takes_nothing_more(url: str, name: str) -> None:
    client = penstock.connect(url)
    await client.create_queue(name)
    queue = client.queue(name)
    tasks = [asyncio.ensure_future(queue.send(b"x")) for _ in range(10)]  # noqa: TID251
    await let_others_run()
    await client.close()
    assert len(set(await asyncio.gather(*tasks))) == 10
    with pytest.raises(penstock.PenstockError, match="closed"):
        await queue.send(b"x")
    with pytest.raises(penstock.PenstockError, match="closed"):
        await queue.receive()
