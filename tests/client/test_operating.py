"""Queues as things that are made, listed, changed and deleted, and what operators do with messages."""

import asyncio
import time
from typing import Any

import pytest

import penstock
from penstock.client import BadRequest, MessageNotFound, Queue, QueueExists, QueueNotFound, RedriveNotFound
from tests.waiting import eventually

pytestmark = pytest.mark.real_time


async def _holds(queue: Queue, count: int) -> bool:
    try:
        return (await queue.describe()).ready == count
    except QueueNotFound:
        return False


async def _has_ended(queue: Queue, task_id: str) -> bool:
    return (await queue.redrive_task(task_id)).state != "running"


async def _has_history(queue: Queue, count: int) -> bool:
    return len((await queue.history(limit=100)).rows) == count


async def test_a_queue_is_made_described_changed_and_deleted(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        view = await client.create_queue(
            name, visibility_timeout=12, tiers={"mode": "strict"}, retry={"min_backoff_s": 2}
        )
        assert (view.queue_name, view.visibility_timeout, view.tiers.mode) == (name, 12, "strict")
        same = await client.create_queue(
            name, visibility_timeout=12, tiers={"mode": "strict"}, retry={"min_backoff_s": 2}
        )
        assert same.queue_id == view.queue_id
        with pytest.raises(QueueExists):
            await client.create_queue(name, visibility_timeout=13)
        queue = client.queue(name)
        assert (await queue.update(max_deliveries=2, queue_size=7)).queue_size == 7
        assert (await queue.describe()).max_deliveries == 2
        await queue.send("x")
        assert (await queue.pause()).paused
        assert await queue.receive() is None
        assert not (await queue.resume()).paused
        assert await queue.purge() == 1
        assert (await queue.delete()).deleted
        with pytest.raises(QueueNotFound) as caught:
            await queue.describe()
        assert (caught.value.code, caught.value.status) == ("queue_not_found", 404)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"visibility_timeout": -1}, "visibility_timeout"),
        ({"visibilty_timeout": 1}, "visibilty_timeout"),
        ({"tiers": {"mode": "random"}}, "tiers.mode"),
        ({"history": "all"}, "history"),
    ],
)
async def test_a_setting_that_cannot_be_right_is_named_before_anything_is_sent(
    settings: dict[str, Any], field: str
) -> None:
    async with penstock.connect("http://127.0.0.1:1") as client:
        with pytest.raises(BadRequest) as caught:
            await client.create_queue("x", **settings)
        assert caught.value.field == field


async def test_all_queues_are_listed_page_by_page(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        names = [f"{name}-{number:04}" for number in range(30)]
        await asyncio.gather(*(client.create_queue(each) for each in names))
        assert [each.queue_name async for each in client.queues(prefix=name)] == names


async def test_messages_are_looked_at_and_explained_without_being_received(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        ids = await queue.send_many([f"number {number}" for number in range(5)])
        await queue.send(b"\xff", priority="LOW", group="g")
        page = await queue.peek(limit=3)
        assert [seen.data for seen in page.messages] == ["number 0", "number 1", "number 2"]
        assert page.next_cursor is not None
        rest = await queue.peek(limit=10, cursor=page.next_cursor)
        assert [seen.data_base64 for seen in rest.messages][-1] == "/w=="
        assert [seen.message_id for seen in (await queue.peek(text="number 4")).messages] == [ids[4]]
        assert [seen.priority for seen in (await queue.peek(priority="LOW", group="g")).messages] == ["LOW"]
        assert (await queue.get_message(ids[2])).data == "number 2"
        assert (await queue.explain(ids[2])).messages_ahead == 2
        with pytest.raises(MessageNotFound):
            await queue.get_message("1-ffffff")
        assert (await queue.describe()).ready == 6


async def test_a_message_is_escalated_by_an_actor_for_a_reason(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        ids = await queue.send_many([b"a", b"b", b"c"])
        done = await queue.escalate([ids[2], "1-ffffff"], priority="CRITICAL", actor="ann", reason="vip")
        assert (done.moved, done.unknown) == ([ids[2]], ["1-ffffff"])
        await queue.escalate({"text": "b"}, priority=1, actor="bob", reason="late", until=time.time() + 3_600)
        message = await queue.receive()
        assert message is not None
        assert message.body == b"c"
        found = [(each.actor, each.reason) for each in await queue.escalations()]
        assert found == [("everybody (bob)", "late"), ("everybody (ann)", "vip")]


async def test_dead_letters_are_requeued_and_redriven(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name, max_deliveries=1)
        queue, dead = client.queue(name), client.queue(f"{name}.dead")
        await queue.send_many([b"%d" % number for number in range(5)])
        batch = await queue.receive(limit=5)
        assert all(await batch.release("broken"))
        await eventually(lambda: _holds(dead, 5))
        letter = await dead.receive()
        assert letter is not None
        assert (letter.last_error, letter.origin_queue) == ("broken", name)
        await letter.release(delay_s=0)
        back = await dead.requeue(batch[0].id)
        assert (back.message_id, back.requeued_to_name) == (batch[0].id, name)
        dry = await dead.redrive(dry_run=True)
        assert (dry.dry_run, dry.moved_total) == (True, 4)
        task = await dead.redrive(message_ids=[batch[1].id, batch[2].id])
        await eventually(lambda: _has_ended(dead, task.task_id))
        task = await dead.redrive_task(task.task_id)
        assert (task.state, task.moved) == ("done", {name: 2})
        assert task.task_id in [each.task_id for each in await dead.redrive_tasks()]
        assert sorted((await queue.receive(limit=10)).bodies) == [b"0", b"1", b"2"]
        slow = await dead.redrive(rate_per_s=0.01)
        assert (await dead.stop_redrive(slow.task_id)).task_id == slow.task_id
        with pytest.raises(RedriveNotFound):
            await dead.redrive_task("nothing")


async def test_the_history_says_what_became_of_settled_messages(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name, history="facts")
        queue = client.queue(name)
        ids = await queue.send_many([b"a", b"b"])
        await (await queue.receive(limit=2)).ack()
        # It is written in the background.
        await eventually(lambda: _has_history(queue, 2))
        page = await queue.history(since=0.0)
        assert [(row.message_id, row.outcome) for row in page.rows] == [(each, "acked") for each in ids]
        assert (await queue.history(offset=page.next_offset)).rows == []


async def test_history_that_is_kept_elsewhere_may_go_and_no_other(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        (shard,) = await client.history_shards()
        assert await client.trim_history(shard.shard, before=shard.first_kept_offset) == shard.first_kept_offset
        with pytest.raises(BadRequest, match="before"):
            await client.trim_history(shard.shard, before=2**62)
    with penstock.connect(url) as sync:
        assert sync.history_shards()[0].shard == 0
        assert sync.trim_history(0, before=0) == shard.first_kept_offset


async def test_a_received_message_is_deleted_by_its_id(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send_many([b"a", b"b"])
        first, second = await queue.receive(limit=2)
        assert (await queue.ack_by_id(first.id, receipt=first.receipt)).deleted
        assert (await queue.ack_by_id(second.id)).deleted
        with pytest.raises(MessageNotFound):
            await queue.ack_by_id(first.id)


async def test_a_scheduled_message_is_taken_back_and_one_that_is_due_is_not(url: str, name: str) -> None:
    async with penstock.connect(url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        later, now = await queue.send("a", delay_s=3_600), await queue.send("b")
        assert (await queue.cancel(later)).cancelled
        with pytest.raises(MessageNotFound):
            await queue.cancel(later)
        with pytest.raises(penstock.NotScheduled):
            await queue.cancel(now)
    with penstock.connect(url) as sync:
        sync.create_queue(name)
        assert sync.queue(name).cancel(sync.queue(name).send("c", delay_s=3_600)).cancelled


async def test_a_server_that_is_ready_says_so(url: str) -> None:
    async with penstock.connect(url) as client:
        assert await client.health() == {"status": "ready", "reasons": []}
